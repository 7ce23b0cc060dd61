"""Builds the C++ of this package with the machine's compiler, once, and loads it.

No torch headers and no build tool: one call of the compiler takes a few seconds, where torch's
own loader of extensions takes half a minute and wants ninja.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("decode_step.cpp")
# No -ffast-math: the order of additions is part of what the code promises, and NaN must come out.
FLAGS = ["-O3", "-march=native", "-std=c++17", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno"]
COMPILERS = ("c++", "g++", "clang++")


@functools.cache
def load_library() -> ctypes.CDLL:
    """The built library of `SOURCE`; built now, where this machine has not built it yet.

    It lies in the folder of `cache_folder`, named by all that it depends on. It is written under
    another name first, so that processes that build at once do not read each other's halves.

    Raises:
        ValueError: no compiler, or it failed; one line that says what to do.
    """
    compiler = find_compiler()
    path = cache_folder() / f"decode_step-{_identity(compiler)}.so"
    try:
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            _build(compiler, path)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ValueError(
            f"engine=native could not build or load {path} ({error}); pass engine=eager, or "
            f"XDG_CACHE_HOME=DIR for a folder that can be written and run from"
        ) from error


def find_compiler() -> str:
    """Path of the C++ compiler: that of the variable CXX, else the first one of `COMPILERS`.

    Raises:
        ValueError: there is none.
    """
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        if path := shutil.which(name):
            return path
    raise ValueError(
        f"engine=native and compile=true need a C++ compiler ({named or ', '.join(COMPILERS)}), "
        f"and none was found; install one, or pass engine=eager to draw, compile=false to train"
    )


def cache_folder() -> Path:
    """Where built libraries lie: `audiolm` in XDG_CACHE_HOME, or in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "audiolm"


def _build(compiler: str, path: Path) -> None:
    # torch's own OpenMP where its wheel brings one: two of them in a process would each keep
    # their threads spinning on the same cores.
    openmp = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        command = [compiler, *FLAGS, str(SOURCE), *map(str, openmp), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            first = (done.stderr.strip() or "it said nothing").splitlines()[0]
            raise ValueError(
                f"engine=native could not be built by {compiler} ({first}); pass engine=eager, "
                f"or another compiler as CXX"
            )
        os.replace(built, path)


def _identity(compiler: str) -> str:
    """Changes with the source, the compiler, the flags, torch and the kind of processor."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    parts = [SOURCE.read_text(), version, *FLAGS, torch.__version__, platform.machine()]
    # Built for this processor (-march=native); a home folder may be shared with another kind.
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        parts += sorted({line for line in lines if line.startswith(("flags", "Features", "model"))})
    else:
        parts.append(platform.processor())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
