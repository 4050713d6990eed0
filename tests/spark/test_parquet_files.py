"""Tests of the encoding of the lake's files."""

import pyarrow.parquet as pq

from klamm_spark.lake.written import ENCODINGS, PLAIN
from tests.spark.conftest import EVENTS


def columns_of(lake):
    """Return the columns of each file, by their names."""
    for path in sorted(lake.events.rglob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            chunks = (file.metadata.row_group(group).column(at) for at in range(file.metadata.num_columns))
            yield {chunk.path_in_schema: chunk for chunk in chunks}


def test_columns_with_many_values_have_no_dictionary_and_times_have_bounds(shipped):
    whole = [columns for columns in columns_of(shipped.lake) if columns["seq"].statistics.has_min_max]
    assert sum(columns["seq"].num_values for columns in whole) == EVENTS
    for columns in whole:
        assert not any(columns[name].has_dictionary_page for name in (*ENCODINGS, *PLAIN))
        assert columns["principal"].has_dictionary_page
        assert columns["resources.list.element.name"].has_dictionary_page
        assert "DELTA_BINARY_PACKED" in columns["seq"].encodings
        assert "DELTA_BYTE_ARRAY" in columns["event_id"].encodings
        assert all(columns[name].physical_type == "INT64" for name in ("time", "shipped_time"))
        assert columns["time"].statistics.min < columns["time"].statistics.max
