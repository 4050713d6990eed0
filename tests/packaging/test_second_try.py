"""Tests of scripts/twice: with it, CI tries a failed test a second time."""

import subprocess
import sys
from pathlib import Path

import pytest

TWICE = Path(__file__).parents[2] / "scripts" / "twice"

TESTS = """
import pathlib
import pytest

def test_passes():
    pass

def test_fails_once():
    tried = pathlib.Path(__file__).with_name("tried")
    again = tried.exists()
    tried.touch()
    assert again

def test_always_fails():
    assert False

@pytest.mark.parametrize("number", range(6))
def test_many_fail_once(number):
    tried = pathlib.Path(__file__).with_name(f"tried{number}")
    again = tried.exists()
    tried.touch()
    assert again
"""


@pytest.mark.parametrize(
    ("expression", "workers", "status", "second"),
    [
        ("test_passes", 0, 0, ""),
        ("test_passes or test_fails_once", 2, 0, '"test_some.py::test_fails_once"\n'),
        ("test_fails_once or test_always_fails", 0, 1, ""),
        ("test_many_fail_once", 0, 1, ""),
        ("nothing", 0, 5, ""),
    ],
)
def test_a_test_has_to_pass_its_second_try(tmp_path, expression, workers, status, second):
    (tmp_path / "test_some.py").write_text(TESTS)
    names = tmp_path / "names"
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-k", expression, "test_some.py"]
    run = subprocess.run([TWICE, names, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == status, run.stdout + run.stderr
    assert (names.read_text() if names.exists() else "") == second
