"""Fixtures that build the distributions which the tests of this folder install."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.test_wheels import PRINT, ROOT, Distributions, build_wheel, run


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Build klamm's sdist, the wheel made of it, and the example's wheel."""
    target = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--outdir", target]
    run(*build, ROOT)
    run(*build, "--wheel", PRINT)
    (sdist,), (wheel,) = target.glob("klamm-*.tar.gz"), target.glob("klamm-*.whl")
    (print_wheel,) = target.glob("klamm_print-*.whl")
    return Distributions(sdist, wheel, print_wheel)


@pytest.fixture(scope="session")
def compiled_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled wheel that `scripts/test` has built, or one built now."""
    if built := os.environ.get("KLAMM_COMPILED"):
        (wheel,) = Path(built).glob("*.whl")
        return wheel
    if shutil.which("gcc") is None or not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        assert "CI" not in os.environ, "the test needs gcc and Python.h"
        pytest.skip("needs gcc and Python.h")
    return build_wheel(tmp_path_factory.mktemp("compiled"), KLAMM_COMPILE="1")
