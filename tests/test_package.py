"""The package from outside: what it offers, and that importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import pytest

import audiolm


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, audiolm; "
        "print(sorted({'torch', 'numpy', 'encodec', 'lightning', 'hydra'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_the_package_offers_is_there() -> None:
    for name in audiolm.__all__:
        assert getattr(audiolm, name) is not None and name in dir(audiolm)
    assert audiolm.Synthesizer.__name__ == "Synthesizer"
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = audiolm.nothing


def test_types_are_packaged() -> None:
    assert files("audiolm").joinpath("py.typed").is_file()
