"""The columns of an event restore the line that the server wrote. Changed columns give another line, or none."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_spark.events.event import ACTIONS, FIELDS, LISTS, SCHEMA_VERSION
from klamm_spark.spool.layout import line_digest
from tests.audit_samples import line_of, sample_events

pa = pytest.importorskip("pyarrow")
event_lines = pytest.importorskip("klamm_spark.spool.event_lines")
written = pytest.importorskip("klamm_spark.spool.written_lines")

ODD = ('"', "\\", '\\"', "\n", "\0", "\x7f", "é", "😀", "\ud800", "\udc00x", '"}\n{"', "a,b", "", "null", "x" * 300)
SEEDS = st.integers(0, 1 << 32)
COUNTS = st.sampled_from([1, 2, 40, 300])


def text(draw):
    """Return one of a few texts, one of many, or one that a line may write with an escape."""
    pick = draw.random()
    if pick < 0.7:
        return f"name-{draw.randrange(3)}"
    return f"{draw.randrange(1 << 60):x}" if pick < 0.98 else draw.choice(ODD)


def number(draw, bits):
    most = (1 << bits) - 1
    return draw.choice((0, 1, -1, most, -most - 1, draw.randrange(5), draw.randrange(-most, most)))


def double(draw):
    return draw.choice((0.0, 0.012, -0.5, -1e12, 1.0, draw.randrange(10**9) / 1000, draw.randrange(10**15) / 1000))


def value_of(field, draw):
    """Return a value of the type that the schema has for a field."""
    if field.type in LISTS:
        return [values_of(LISTS[field.type], draw) for _ in range(draw.choice((0, 1, 1, 1, 3)))]
    if field.type == "string":
        return text(draw)
    if field.type == "double":
        return double(draw)
    return draw.random() < 0.5 if field.type == "boolean" else number(draw, 31 if field.type == "int" else 63)


def values_of(fields, draw):
    return {field.name: value_of(field, draw) for field in fields if field.required or draw.random() < 0.5}


def events_of(draw, count):
    """Return events of all kinds, with the fields that the schema has for them."""
    shares = {field.name: draw.choice((0.0, 0.1, 0.9, 1.0)) for field in FIELDS}
    constant = {field.name: value_of(field, draw) for field in FIELDS if draw.random() < 0.3}
    for at in range(count):
        kind = list(ACTIONS)[at % len(ACTIONS)]
        fields = [each for each in FIELDS if not each.kinds or kind in each.kinds]
        event = {
            each.name: constant[each.name] if each.name in constant else value_of(each, draw)
            for each in fields
            if each.required or draw.random() < shares[each.name]
        }
        fixed = {
            "schema_version": SCHEMA_VERSION,
            "kind": kind,
            "time_us": draw.choice((0, at, written.MAX_TIME_US - 1)),
        }
        yield {name: {**event, **fixed}[name] for name in event}


def columns_of(events):
    """Return events as Arrow can hold them: without halves of surrogate pairs."""
    (batch,) = pa.Table.from_pylist([whole(event) for event in events], event_lines.EVENT).combine_chunks().to_batches()
    return batch


def whole(value):
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def in_dictionaries(batch):
    """Return the same columns with texts in dictionaries, as Parquet files return them."""
    columns = [each.dictionary_encode() if pa.types.is_string(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


@given(SEEDS, COUNTS)
def test_columns_restore_the_line_that_was_written(seed, count):
    events = list(events_of(random.Random(seed), count))
    lines = [line_of(event)[:-1].decode() for event in events]
    batch = columns_of(events)
    for columns in (batch, in_dictionaries(batch)):
        there = written.written_lines(columns)
        for line, found in zip(lines, there.to_pylist(), strict=True):
            # If the columns cannot restore a line, the row keeps the whole line.
            assert found == line if "\\" not in line else found != line
        digests = written.digests_of_lines(there).to_pylist()
        expected = [None if each is None else line_digest(each.encode()) for each in there.to_pylist()]
        assert [None if each is None else each.hex() for each in digests] == expected


@given(SEEDS, COUNTS)
def test_a_row_is_restored_from_its_columns_or_keeps_its_line(seed, count):
    events = list(events_of(random.Random(seed), count))
    lines = [line_of(event) for event in events]
    rows = event_lines.EventLines().rows_of(b"".join(lines))
    assert rows.column("bad_line").null_count == rows.column("newer_line").null_count == count
    kept = rows.column("kept_line").to_pylist()
    given = event_lines.EventLines().lines_of(rows.select(event_lines.EVENT.names)).to_pylist()
    assert [whole or line for whole, line in zip(kept, given, strict=True)] == [line[:-1].decode() for line in lines]
    assert sum(each is not None for each in kept) == sum(b"\\" in line for line in lines)


@given(SEEDS, COUNTS)
def test_each_value_that_is_changed_gives_another_line(seed, count):
    draw = random.Random(seed)
    events = [json.loads(line_of(event)) for event in events_of(draw, count)]
    before = written.written_lines(columns_of(events)).to_pylist()
    at, field = draw.randrange(count), draw.choice(FIELDS)
    event = dict(events[at])
    changed = None if draw.random() < 0.2 else value_of(field, draw)
    if changed == event.get(field.name):
        return
    event[field.name] = changed
    after = written.written_lines(columns_of([*events[:at], event, *events[at + 1 :]])).to_pylist()
    assert after[at] is None or after[at] != before[at]
    del before[at], after[at]
    assert before == after


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 0.0005, 1e15, 1e300, 0.1 + 0.2])
@pytest.mark.parametrize("count", [1, 100])
def test_a_double_without_three_digits_gives_no_line(value, count):
    events = [event | {"total_time_ms": value} for event in sample_events(count)]
    assert written.written_lines(columns_of(events)).null_count == count


@pytest.mark.parametrize(
    ("name", "value"),
    [("seq", "5"), ("client_port", 5.0), ("principal", b"User:a"), ("total_time_ms", 5), ("resources", "[]")],
)
def test_a_column_of_another_type_gives_no_line(name, value):
    """Otherwise other readers would read another event than was written."""
    batch = columns_of(list(sample_events(20)))
    at = batch.schema.get_field_index(name)
    columns = [*batch.columns[:at], pa.array([value] * 20), *batch.columns[at + 1 :]]
    assert written.written_lines(pa.RecordBatch.from_arrays(columns, names=batch.schema.names)).null_count == 20


def test_columns_of_large_texts_are_read_as_texts():
    batch = columns_of(list(sample_events(20)))
    columns = [each.cast(pa.large_string()) if pa.types.is_string(each.type) else each for each in batch.columns]
    large = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    assert written.written_lines(large).equals(written.written_lines(batch))


def test_a_list_with_a_column_twice_is_refused():
    item = pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"])], ["name", "name"])
    batch = columns_of(list(sample_events(1)))
    at = batch.schema.get_field_index("resources")
    columns = [*batch.columns[:at], pa.ListArray.from_arrays([0, 1], item), *batch.columns[at + 1 :]]
    with pytest.raises(ValueError, match="a column twice"):
        written.written_lines(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))


@pytest.mark.parametrize("name", ["Name", "nAME", "other"])
@pytest.mark.parametrize("inner", [False, True], ids=["resources", "attributes"])
def test_a_list_with_an_unknown_field_is_refused(name, inner):
    """DuckDB and Spark would read `Name` as `name`."""
    item = pa.StructArray.from_arrays([pa.array(["FORGED"]), pa.array(["a"])], [name, "name"])
    if inner:
        item = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], item)], ["attributes"])
    batch = columns_of(list(sample_events(1)))
    at = batch.schema.get_field_index("resources")
    columns = [*batch.columns[:at], pa.ListArray.from_arrays([0, 1], item), *batch.columns[at + 1 :]]
    with pytest.raises(ValueError, match=f"readers may take {name}"):
        written.written_lines(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))


@pytest.mark.parametrize("count", [1, 100])
def test_negative_zero_differs_from_zero(count):
    events = [event | {"total_time_ms": 0.0} for event in sample_events(count)]
    assert written.written_lines(columns_of(events)).null_count == 0
    forged = written.written_lines(columns_of([event | {"total_time_ms": -0.0} for event in events]))
    assert forged.null_count == count


def test_no_events_give_no_lines():
    assert len(written.digests_of_lines(event_lines.EventLines().lines_of(event_lines.EVENT.empty_table()))) == 0


@pytest.mark.parametrize("count", [1, 100])
def test_a_value_with_a_quote_cannot_replace_the_field_after_it(count):
    """Otherwise queries would not find the forged field in its column, although the line would be the same."""
    events = [{**event, "principal": "User:a", "client_id": "app"} for event in sample_events(count)]
    for event in events:
        event.update(client_software_name=None, client_software_version=None, tls_version=None, tls_cipher=None)
        event.update(sni=None, sasl_mechanism=None)
    there = written.written_lines(columns_of(events))
    assert there.null_count == 0
    forged = [event | {"principal": 'User:a","client_id":"app', "client_id": None} for event in events]
    assert written.written_lines(columns_of(forged)).null_count == count
