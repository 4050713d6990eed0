"""From an empty environment and a local package index, a first test produces within a minute, in under ten lines."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from bench.first_produce import first_test, measure

pytestmark = pytest.mark.interop

OTHERS = ("python3.14", "python3.15")
NEWER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "klamm-pythons", "usr", "bin")
"""The folder where `scripts/test` unpacks programs that the system does not have."""


def test_the_first_test_is_under_ten_lines() -> None:
    lines = first_test().splitlines()
    assert len(lines) < 10
    assert any("klamm_server.produce(" in line for line in lines)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("python", [sys.executable, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)])
def test_the_first_test_passes_within_a_minute(python: str, tmp_path: Path) -> None:
    found = shutil.which(python) or shutil.which(python, path=NEWER)
    if found is None:
        pytest.skip(f"{python} is not here")
    taken = measure(found, tmp_path)
    print(taken)
    assert taken.processor_s < 60
