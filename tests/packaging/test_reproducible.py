"""Two builds in different folders at different times give the same bytes: sdist, pure and compiled wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.test_wheels import Distributions, clean_environment

pytestmark = pytest.mark.interop

LATER = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "7"}


def built_again(sdist: Path, folder: Path, **environment: str) -> dict[str, bytes]:
    """Build the content of an sdist elsewhere, with other times and modes of files, time zone and order of sets."""
    shutil.unpack_archive(sdist, folder)
    (source,) = folder.iterdir()
    # A clone lacks this file, which a build writes.
    (source / "PKG-INFO").unlink()
    for number, file in enumerate(sorted(source.rglob("*"))):
        os.utime(file, (number, 1_000_000_000 + number))
        file.chmod(0o700 if file.is_dir() or os.access(file, os.X_OK) else 0o600)
    again = folder / "again"
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", again],
        cwd=source,
        env=clean_environment() | LATER | environment,
        capture_output=True,
        check=True,
        timeout=480,
        umask=0o077,
    )
    return {file.name: file.read_bytes() for file in again.iterdir()}


def test_sdist_and_pure_python_wheel_are_reproducible(distributions: Distributions, tmp_path: Path) -> None:
    first = {file.name: file.read_bytes() for file in (distributions.sdist, distributions.wheel)}
    assert built_again(distributions.sdist, tmp_path, KLAMM_COMPILE="0") == first


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_compiled_wheel_is_reproducible(distributions: Distributions, compiled_wheel: Path, tmp_path: Path) -> None:
    found = built_again(distributions.sdist, tmp_path, KLAMM_COMPILE="1")
    assert found[compiled_wheel.name] == compiled_wheel.read_bytes()
