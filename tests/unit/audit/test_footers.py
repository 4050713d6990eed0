"""Whatever a footer, the headers of pages or a schema say, a reader does not crash, wait long or fill the memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.audit.made_parquet import MADE, ORDERS, column, footer, group, inner, page, parquet, text

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

ROOT = Path(__file__).parents[3]
PEAK_BYTES = 100 << 20
READ = """
import json, sys
from pathlib import Path
import pyarrow as pa
from klamm_spark.lake import parquet
from klamm_spark.lake.files import TableFile, read_columns
from klamm_spark.lake.scanned import scan
parquet._MOST_BYTES, parquet._BATCH_BYTES = 50 << 20, 10 << 20
said = []
try:
    with parquet.open_parquet(Path(sys.argv[1])) as file:
        said.append(sum(map(len, parquet.batches_of(file))))
except (OSError, ValueError) as error:
    said.append(f"{error}")
said.append(scan(TableFile(sys.argv[1], None)).problems)
print(json.dumps([*said, pa.default_memory_pool().max_memory()]))
"""


def read(path):
    """Read a file with `open_parquet` and `scan` in another process. Return their answers and the peak of memory."""
    done = subprocess.run(
        [sys.executable, "-c", READ, path], capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ
    )
    assert done.returncode == 0, done.stderr[-1000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("made", MADE)
def test_a_file_that_misleads_its_readers_is_named(tmp_path, made):
    path = tmp_path / "file.parquet"
    path.write_bytes(MADE[made]())
    said, problems, peak_bytes = read(path)
    assert isinstance(said, str), made
    assert str(path) in problems[0]
    assert peak_bytes < PEAK_BYTES


def test_a_correct_file_made_by_hand_is_read(tmp_path):
    """Each damaged file of this module differs from this correct file in one thing."""
    path = tmp_path / "file.parquet"
    pages = page(3, bytes(24))
    bounds = inner(12, *(text(field, bytes(8)) for field in (5, 6)))
    said = column(bounds, values=3, unpacked=100, packed=len(pages))
    path.write_bytes(parquet(footer(group(said, rows=3), rows=3, more=ORDERS), pages))
    assert read(path)[0] == 3


LONG_TEXT, COUNT = "x" * 100_000, 3_000
TYPES = {
    "a large list": lambda texts: pa.LargeListArray.from_arrays(pa.array([0, COUNT], pa.int64()), texts),
    "a list of a fixed size": lambda texts: pa.FixedSizeListArray.from_arrays(texts, COUNT),
    "a view of a list": lambda texts: pa.ListViewArray.from_arrays(
        pa.array([0], pa.int32()), pa.array([COUNT], pa.int32()), texts
    ),
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_type_whose_bytes_are_not_counted_is_named(tmp_path, kind):
    import pyarrow.parquet as pq

    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"event_id": TYPES[kind](pa.array([LONG_TEXT] * COUNT))}), path, compression="zstd")
    said, problems, _ = read(path)
    assert "event_id has a type that is not read" in said
    assert str(path) in problems[0]
