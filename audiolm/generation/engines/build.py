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
import shlex
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

    It lies in the folder of `cache_folder`, named by all that it depends on and by a hash of its
    own bytes: a damaged one would crash the process, and is built anew. It is written under another
    name first, so that processes that build at once do not read each other's halves.

    Raises:
        ValueError: no compiler, or it failed; one line that says what to do.
    """
    compiler = find_compiler()
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"decode_step-{_identity(compiler)}"
        whole = [path for path in folder.glob(f"{stem}-*.so") if path.name == _name(stem, path)]
        return ctypes.CDLL(str(whole[0] if whole else _build(compiler, folder, stem)))
    except OSError as error:
        raise ValueError(
            f"engine=native could not be built or loaded in {folder} ({error}); pass engine=eager, "
            f"or XDG_CACHE_HOME=DIR for a folder that can be written and run from"
        ) from error


def find_compiler() -> list[str]:
    """The command of the C++ compiler: that of the variable CXX, else the first of `COMPILERS`.

    Raises:
        ValueError: there is none.
    """
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        program, *options = shlex.split(name)  # such as "ccache g++"
        if path := shutil.which(program):
            return [path, *options]
    raise ValueError(
        f"engine=native and compile=true need a C++ compiler ({named or ', '.join(COMPILERS)}), "
        f"and none was found; install one, or pass engine=eager to generate, compile=false to train"
    )


def cache_folder() -> Path:
    """Where built libraries lie: `audiolm` in XDG_CACHE_HOME, or in ~/.cache.

    Raises:
        ValueError: this user has no home folder.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "audiolm"
    except RuntimeError as error:
        raise ValueError(
            f"engine=native has no folder to be built in ({error}); set XDG_CACHE_HOME=DIR, or "
            f"pass engine=eager"
        ) from error


def _name(stem: str, path: Path) -> str:
    """What a library with these bytes is called."""
    return f"{stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}.so"


def _build(compiler: list[str], folder: Path, stem: str) -> Path:
    # torch's own OpenMP where its wheel brings one: two of them in a process would each keep
    # their threads spinning on the same cores.
    openmp = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        built = Path(temporary) / "decode_step.so"
        command = [*compiler, *FLAGS, str(SOURCE), *map(str, openmp), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0 or not built.is_file():
            first = (done.stderr.strip() or "it said nothing").splitlines()[0]
            raise ValueError(
                f"engine=native could not be built by {shlex.join(compiler)} ({first}); pass "
                f"engine=eager, or another compiler as CXX"
            )
        path = folder / _name(stem, built)
        os.replace(built, path)
        return path


def _identity(compiler: list[str]) -> str:
    """Changes with the source, the compiler, the flags, torch and the kind of processor."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    parts = [SOURCE.read_text(), version, *compiler, *FLAGS, torch.__version__, platform.machine()]
    # Built for this processor (-march=native); a home folder may be shared with another kind.
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        parts += sorted({line for line in lines if line.startswith(("flags", "Features", "model"))})
    else:
        parts.append(platform.processor())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
