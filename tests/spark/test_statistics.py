"""The statistics of a file in a commit are compared with the file's rows."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake import parquet
from klamm_spark.lake.files import Committed, TableFile, read_columns
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
    return [line.removeprefix(f"{path}: ") for line in scan(TableFile(str(path), None, (committed,))).problems]


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
        # Times are whole milliseconds, because Delta truncates them.
        Committed(3, {"time": TIME.replace(microsecond=1_000)}, {"time": TIME.replace(microsecond=1_000)}),
    ],
)
def test_correct_statistics_are_no_problem(tmp_path, committed):
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
def test_statistics_that_let_a_query_skip_a_row_are_named(tmp_path, committed, what):
    assert problems(tmp_path, committed) == [f"its commit is wrong about {what}, and a query may skip rows"]


def test_statistics_of_another_type_are_named(tmp_path):
    (problem,) = problems(tmp_path, Committed(lowest={"seq": "x"}))
    assert "cannot be read" in problem


@pytest.mark.parametrize("doubles", [[float("nan")] * 4, [float("nan"), float("nan"), 1.0, float("inf")]])
def test_nan_does_not_count_for_the_bounds_of_a_column(tmp_path, doubles):
    path = tmp_path / "a.parquet"
    rows = pa.Table.from_pylist([{"send_time_ms": double} for double in doubles], FILE)
    pq.write_table(rows, path, row_group_size=2)
    assert scan(TableFile(str(path), None, (Committed(4, {"send_time_ms": 1.0}),))).problems == []


def repeated(text, rows):
    """Return a column with one text in all rows. A file stores the text once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [text])


def in_lists(texts):
    structs = pa.StructArray.from_arrays([texts], ["name"])
    return pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), structs)


@pytest.mark.parametrize("column", ["principal", "resources"])
def test_reading_stops_at_a_file_that_unpacks_to_many_gigabytes(tmp_path, column):
    path, texts = tmp_path / "a.parquet", repeated("x" * (1 << 20), 300_000)
    table = pa.table({column: in_lists(texts) if column == "resources" else texts})
    pq.write_table(table, path, store_schema=False)
    assert path.stat().st_size < 1 << 20
    said = [f"{path} cannot be read: 65,536 of its rows unpack to 68,719,476,736 bytes"]
    assert list(scan(TableFile(str(path), None)).problems) == said
    with pytest.raises(LakeError, match="unpack to"):
        list(read_columns([TableFile(str(path), None)], [column]))


def test_a_file_whose_footer_states_many_gigabytes_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"principal": [f"{number:01000}" for number in range(1000)]}), path, compression="zstd")
    assert list(scan(TableFile(str(path), None)).problems) == []
    monkeypatch.setattr(parquet, "_MOST_GROUP_BYTES", 900_000)
    (problem,) = scan(TableFile(str(path), None)).problems
    assert problem.startswith(f"{path} cannot be read: 1,000 of its rows unpack to 1,0")


@pytest.mark.parametrize("store_schema", [True, False])
def test_texts_are_compared_whatever_their_type_in_the_file(tmp_path, store_schema):
    path = tmp_path / "a.parquet"
    columns = {"principal": repeated("User:a", 3), "resources": in_lists(repeated("orders", 3))}
    pq.write_table(pa.table({**columns, "sni": ["a", None, "b"], "seq": [1, None, 3]}), path, store_schema=store_schema)
    (batch,) = read_columns([TableFile(str(path), None)], ["principal", "resources", "sni", "seq"])
    assert batch.to_pylist() == [
        {"principal": "User:a", "resources": [{"name": "orders"}], "sni": sni, "seq": seq}
        for sni, seq in (("a", 1), (None, None), ("b", 3))
    ]
    assert batch.schema.field("principal").type == pa.string()
