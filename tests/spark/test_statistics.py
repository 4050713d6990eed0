"""What a commit says of a file is held against the file's rows."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm_spark.lake.files import Committed, TableFile
from klamm_spark.lake.scanned import scan
from klamm_spark.lake.written import FILE

TIME = datetime(2026, 1, 1, 0, 0, 0, 1_999, UTC)
ROWS = [
    {"node": "n", "seq": 1, "time": TIME, "send_time_ms": 0.5},
    {"node": "m", "seq": 2, "time": TIME, "resources": [{"name": "orders"}]},
    {"node": None, "seq": 3, "time": TIME},
]


def problems(folder, committed):
    path = folder / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, FILE), path, row_group_size=2)
    return [line.removeprefix(f"{path}: ") for line in scan(TableFile(str(path), None, committed)).problems]


@pytest.mark.parametrize(
    "committed",
    [
        Committed(),
        Committed(
            3,
            {"node": "m", "seq": 1},
            {"node": "n", "seq": 3},
            {"node": 1, "seq": 0, "principal": 3, "resources": 2, "left_out": 3},
        ),
        Committed(3, {"seq": 0, "principal": "a"}, {"seq": 4, "principal": "b", "send_time_ms": 0.5}),
        # In whole milliseconds, as Delta cuts times off.
        Committed(3, {"time": TIME.replace(microsecond=1_000)}, {"time": TIME.replace(microsecond=1_000)}),
    ],
)
def test_what_fits_is_no_problem(tmp_path, committed):
    assert problems(tmp_path, committed) == []


@pytest.mark.parametrize(
    ("committed", "what"),
    [
        (Committed(2), "the number of rows"),
        (Committed(lowest={"seq": 2}), "seq"),
        (Committed(highest={"seq": 2}), "seq"),
        (Committed(lowest={"node": "n"}), "node"),
        (Committed(nulls={"node": 3}), "node"),
        (Committed(nulls={"resources": 3}), "resources"),
        (Committed(nulls={"resources": 1}), "resources"),
        (Committed(nulls={"principal": 2}), "principal"),
        (Committed(nulls={"left_out": 0}), "left_out"),
        (Committed(highest={"send_time_ms": 0.4}), "send_time_ms"),
        (Committed(highest={"time": TIME - timedelta(milliseconds=2)}), "time"),
    ],
)
def test_what_lets_a_query_skip_a_row_is_named(tmp_path, committed, what):
    assert problems(tmp_path, committed) == [f"its commit is wrong about {what}, and a query may skip rows"]


def test_statistics_of_another_type_are_named(tmp_path):
    (problem,) = problems(tmp_path, Committed(lowest={"seq": "x"}))
    assert "cannot be read" in problem
