"""Runs the programs of docs/testing.md, and the tests that it and the pages beside it show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


PAGES = ("README.md", "docs/simulation.md", "docs/start.md", "docs/testing.md")
PROGRAMS = [block for block in blocks("docs/testing.md") if "def test_" not in block]


@pytest.mark.parametrize("block", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/testing.md", "exec"), {"__name__": "program"})


def test_the_tests_pass(tmp_path):
    shown = [block for page in PAGES for block in blocks(page) if "def test_" in block]
    assert len(shown) == 8
    for number, block in enumerate(shown):
        (tmp_path / f"test_{number}.py").write_text(block, encoding="utf-8")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "klamm_pytest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], env=environment, capture_output=True, text=True, timeout=120
    )
    assert "10 passed" in done.stdout, done.stdout + done.stderr
