"""From an empty folder and local indexes, a first test in Go, Java and Node produces, in under ten lines."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.first_produce_languages import PROJECTS, first_test, measure

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("language", PROJECTS)
def test_a_first_test_produces(language: str, tmp_path: Path) -> None:
    lines = list(filter(None, first_test(language).splitlines()))
    assert len(lines) < 10
    assert any("roduce(" in line for line in lines)
    if shutil.which(PROJECTS[language].tool) is None:
        pytest.skip(f"{PROJECTS[language].tool} is not installed")
    print(measure(language, tmp_path))
