"""Files of a few kilobytes that stand for any amount of memory: each is named by a process that has not so much."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import klamm_spark

pa = pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
pytest.importorskip("resource", reason="limits of memory are of Unix")

LIMIT_BYTES = 4 * 1024**3
PEAK_MIB = 2_500
TEXT = "x" * (1 << 20)
ROWS_OF_A_GROUP, GROUPS = 50, 120
READ = f"""
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, ({LIMIT_BYTES}, {LIMIT_BYTES}))
from klamm_spark.lake.commits import with_statements
from klamm_spark.lake.files import TableFile
from klamm_spark.lake.scanned import scan
from klamm_spark.lake.seals import read_seals
from klamm_spark.lake.forgotten import read_forgotten
from klamm_spark.lake.commits import _adds
from klamm_spark.lake.layout import Lake

def checkpoint(lake):
    try:
        list(_adds(lake, []))
    except Exception as error:
        return [f"{{type(error).__name__}}: {{error}}"]

reader, lake = sys.argv[1], Lake(Path(sys.argv[2]))
print({{
    "events": lambda: scan(TableFile(str(lake.events / "bomb.parquet"), None)).problems,
    "seals": lambda: read_seals(lake).breaks,
    "forgotten": lambda: read_forgotten(lake, "one").breaks,
    "checkpoint": lambda: checkpoint(lake),
}}[reader]())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
PLACES = {
    "events": ("events/bomb.parquet", "principal"),
    "seals": ("seals/bomb.parquet", "seal"),
    "forgotten": ("forgotten/bomb.parquet", "record"),
    "checkpoint": ("events/_delta_log/1.checkpoint.parquet", "add"),
}
COLUMNS = {
    "events": ("source_file", "node"),
    "seals": ("segment", "node", "boot"),
    "forgotten": ("segment", "digests"),
    "checkpoint": (),
}


def rows_of(bomb):
    return ROWS_OF_A_GROUP * (GROUPS if bomb == "dictionary" else 1)


def values_of(bomb):
    """The column of a group of rows: one long text, so many times."""
    zeros = pa.array([0] * rows_of(bomb), pa.int32())
    if bomb == "fixed":
        return pa.array([TEXT.encode()], pa.binary(len(TEXT))).take(zeros)
    if bomb == "dictionary":
        return pa.DictionaryArray.from_arrays(zeros, pa.array([TEXT]))
    return pa.array([TEXT]).take(zeros)


def write_bomb(path, column, others, bomb):
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True)
    values = values_of(bomb)
    how = {}
    if bomb == "delta":
        how = {
            "use_dictionary": False,
            "column_encoding": {f"{column}.path" if column == "add" else column: "DELTA_BYTE_ARRAY"},
        }
    if column == "add":
        small = pa.array(["{}"] * rows_of(bomb))
        values = pa.StructArray.from_arrays([values, small], ["path", "stats"])
    table = pa.table({name: pa.array(["x"] * rows_of(bomb)) for name in others} | {column: values})
    with pq.ParquetWriter(path, table.schema, compression="zstd", **how) as writer:
        for _ in range(1 if bomb == "dictionary" else GROUPS):
            writer.write_table(table)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bomb", ["dictionary", "delta", "fixed"])
@pytest.mark.parametrize("reader", PLACES)
def test_a_bomb_is_named_within_a_limit_of_memory(tmp_path, reader, bomb):
    place, column = PLACES[reader]
    write_bomb(tmp_path / place, column, COLUMNS[reader], bomb)
    assert (tmp_path / place).stat().st_size < 4 << 20
    done = subprocess.run(
        [sys.executable, "-c", READ, reader, str(tmp_path)], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    problems, peak_mib = done.stdout.splitlines()
    assert int(peak_mib) < PEAK_MIB, peak_mib
    # Events are read in parts: a dictionary may stand for any number of rows.
    if (reader, bomb) != ("events", "dictionary"):
        assert "unpack" in problems or "cannot be read" in problems or "no text" in problems, problems


@pytest.mark.parametrize("name", ["events/bomb.parquet", "seals/bomb.parquet", "forgotten/bomb.parquet"])
def test_a_file_with_a_terabyte_of_nothing_is_named(tmp_path, name):
    (tmp_path / name).parent.mkdir()
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)
    done = subprocess.run(
        [sys.executable, "-c", READ, name.partition("/")[0], str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "bomb.parquet" in done.stdout


PARQUET = {"lake/files.py"}
WHOLE = {
    "storage/files.py": "the spool's own file",
    "storage/filesystems.py": "what all others call",
    "spool/folder.py": "segments that the server writes itself",
    "spool/signatures.py": "a key of the configuration",
    "terminal/evidence.py": "files of the command line",
}


def test_what_others_have_written_is_read_in_one_place():
    """Each reader has the limits then."""
    root = Path(klamm_spark.__file__).parent
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        calls = {
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert name in PARQUET or not calls & {"ParquetFile", "read_table", "read_metadata"}, name
        assert name in WHOLE or "read_bytes" not in calls, name
