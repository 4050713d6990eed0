"""Lines that are not events also become a row, whatever their content."""

import json

import pytest

from tests.audit_samples import sample_events

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


@pytest.mark.parametrize("name", ["total_time_ms", "time_us", "seq", "request_bytes"])
@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400])
def test_a_line_with_a_number_of_many_digits_is_invalid(name, number):
    from klamm_spark.spool.event_lines import EventLines

    event = next(sample_events(1))
    line = json.dumps({**event, name: 0}, separators=(",", ":"))
    bad = line.replace(f'"{name}":0', f'"{name}":{number}', 1)
    assert bad != line
    rows = EventLines().rows_of(f"{line}\n{bad}\n".encode())
    assert [row for row in rows.column("bad_line").to_pylist() if row] == [bad]
