"""DuckDB's progress bar never appears in the output of a command."""

import subprocess
import sys
from pathlib import Path

import pytest

import klamm_spark

pytest.importorskip("duckdb")

ASKED = """
from klamm_spark.storage.database import connect
with connect(threads=1) as database:
    print(database.execute("SELECT current_setting('enable_progress_bar')").fetchone())
    print(database.cursor().execute("SELECT current_setting('enable_progress_bar')").fetchone())
"""


def test_duckdbs_progress_bar_is_off():
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["(False,)", "(False,)"]


def test_one_module_opens_all_databases():
    root = Path(klamm_spark.__file__).parent
    opening = [
        path.relative_to(root).as_posix() for path in root.rglob("*.py") if "duckdb.connect(" in path.read_text()
    ]
    assert opening == ["storage/database.py"]
