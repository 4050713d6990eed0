"""The examples for tests in Go, JavaScript and Java pass; one whose tools are missing is skipped, with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "testing"
# What each needs, what fetches its packages (which takes a network the first time), and what runs it.
LANGUAGES = {
    "go": ("go", ["go", "mod", "download"], ["go", "test", "-count=1", "./..."]),
    "node": ("npm", ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline"], ["npm", "test"]),
    "java": ("mvn", ["mvn", "-q", "-B", "dependency:resolve"], ["mvn", "-q", "-B", "test"]),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_passes(language: str, tmp_path: Path) -> None:
    tool, fetch, test = LANGUAGES[language]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    folder = tmp_path / language
    shutil.copytree(EXAMPLES / language, folder, ignore=shutil.ignore_patterns("node_modules", "target"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KLAMM": f"{sys.executable} -m klamm"}

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
        )

    fetched = run(fetch)
    if fetched.returncode:
        pytest.skip(f"{' '.join(fetch)} fails: {(fetched.stdout + fetched.stderr)[-500:]}")
    done = run(test)
    assert done.returncode == 0, done.stdout + done.stderr
