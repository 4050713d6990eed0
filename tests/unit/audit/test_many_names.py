"""Readers can read what `ship` writes for events that name many resources."""

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa

from klamm_spark.lake import parquet as lake_parquet
from klamm_spark.lake import written
from klamm_spark.lake.files import TableFile, read_columns
from klamm_spark.lake.written import FILE, _Files

ROWS, NAMES = 300, 150


def rows_with(names):
    """Return rows of a segment. Each row has resources with these names."""
    resources = pa.array([[{"name": name} for name in names(row)] for row in range(ROWS)])
    given = {"time_us": pa.array(range(ROWS), pa.int64()), "resources": resources}
    fields = [field for field in FILE if field.name not in ("source_file", "shipped_time", "time")]
    columns = [given[f.name].cast(f.type) if f.name in given else pa.nulls(ROWS, f.type) for f in fields]
    return pa.table(columns, schema=pa.schema(fields))


@pytest.mark.parametrize("is_small", [True, False], ids=["small groups", "one large group"])
@pytest.mark.parametrize("is_distinct", [True, False], ids=["distinct", "the same"])
def test_many_long_names_round_trip(tmp_path, monkeypatch, is_small, is_distinct):
    def names(row):
        return [f"{row * is_distinct}-{number}".ljust(249, "x") for number in range(NAMES)]

    monkeypatch.setattr(lake_parquet, "_MOST_BYTES", 1 << (20 if is_small else 24))
    monkeypatch.setattr(lake_parquet, "_BATCH_BYTES", 1 << 17)
    if is_small:
        monkeypatch.setattr(written, "_BYTES_AT_ONCE", 1 << 17)
    writing = _Files(tmp_path, 1)
    writing.add(rows_with(names), "segment")
    assert bool(writing._waiting) is not is_small
    (file,) = writing.close()
    path = tmp_path / file.path
    found = [
        (len(batch), [[each["name"] for each in row] for row in batch.column(0).to_pylist()])
        for batch in read_columns([TableFile(str(path), None)], ["resources"])
    ]
    assert [row for _, rows in found for row in rows] == [names(row) for row in range(ROWS)]
    assert max(rows for rows, _ in found) <= (1 << 17) // NAMES // 249
