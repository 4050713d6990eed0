"""The examples that Hypothesis tries: the same ones in every run, others with `--hypothesis-seed` (scripts/fuzz)."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
A_TEST = """
import importlib
import os

from hypothesis import given
from hypothesis import strategies as st

if os.environ["IMPORTS"]:
    importlib.import_module(os.environ["IMPORTS"])

@given(number=st.integers(), text=st.text())
def test_prints(number, text):
    print("drawn:", number, ascii(text))

def test_seed(seed):
    print("seed:", seed)
"""


def drawn(folder, *arguments, imports="", hash_seed="1"):
    """What a run draws, and the seed that it gives to tests that draw by themselves."""
    (folder / "test_prints.py").write_text(A_TEST)
    environment = os.environ | {"IMPORTS": imports, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    run = subprocess.run(
        [*command, "--rootdir", folder, *arguments, folder / "test_prints.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    return [line for line in lines if "drawn:" in line], [line for line in lines if "seed:" in line]


def test_each_run_tries_the_same_examples_unless_it_is_given_a_seed(tmp_path):
    once = drawn(tmp_path)
    assert len(once[0]) == 100
    assert drawn(tmp_path, imports="klamm.wire.records", hash_seed="2") == once
    other = drawn(tmp_path, "--hypothesis-seed=4711")
    assert other[0] != once[0]
    assert other[1] != once[1]
