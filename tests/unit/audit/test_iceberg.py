"""Tests of `klamm audit iceberg`: an Iceberg table has each event of a spool once, as pyiceberg and DuckDB read it."""

import json
import shutil
from datetime import UTC, datetime

import pytest

from klamm_spark.cli import main
from klamm_spark.events.event import FIELDS
from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import SEAL_SUFFIX, sealed_segments
from klamm_spark.terminal import iceberg
from tests.audit_samples import sample_events, write_sample_spool

duckdb = pytest.importorskip("duckdb")
pyiceberg = pytest.importorskip("pyiceberg", exc_type=ImportError)
pytest.importorskip("pyiceberg.catalog.sql", exc_type=ImportError)
pytest.importorskip("pyarrow")

COUNT = 300


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a spool of three segments, and a catalog in SQLite."""
    write_sample_spool(tmp_path / "spool", sample_events(COUNT), events_per_segment=100)
    # pyiceberg reads its configuration when it is imported.
    given = {"own": {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}}
    monkeypatch.setattr(pyiceberg.catalog._ENV_CONFIG, "config", {"catalog": given})
    return tmp_path


def ship(place, *more):
    return main(["iceberg", "--spool", str(place / "spool"), "--catalog", "own", *more])


def table():
    from pyiceberg.catalog import load_catalog

    return load_catalog("own").load_table("klamm.events")


def seqs():
    return sorted(table().scan().to_arrow().column("seq").to_pylist())


def test_each_event_is_in_the_table_once_with_all_fields(place):
    assert ship(place) == 0
    assert ship(place) == 0
    write_sample_spool(place / "spool", sample_events(100, first_seq=COUNT))
    assert ship(place) == 0
    rows = sorted(table().scan().to_arrow().to_pylist(), key=lambda row: row["seq"])
    events = [*sample_events(COUNT), *sample_events(100, first_seq=COUNT)]
    assert len(rows) == len(events)
    for row, event in zip(rows, events, strict=True):
        assert row.pop("time") == datetime.fromtimestamp(event["time_us"] / 1e6, UTC)
        assert str(row.pop("date")) == "2026-01-01"
        assert row.keys() == {field.name for field in FIELDS}
        assert _whole(row) == event


def _whole(value):
    """Return an event without null fields, and without empty ones in lists within lists, as a server writes it."""
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items() if each is not None and each != []}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def test_another_engine_reads_the_files_that_the_table_names(place):
    assert ship(place) == 0
    files = [task.file.file_path for task in table().scan().plan_files()]
    counted = duckdb.sql("SELECT kind, count(*) FROM read_parquet($1) GROUP BY 1", params=[files]).fetchall()
    kinds = [event["kind"] for event in sample_events(COUNT)]
    assert dict(counted) == {kind: kinds.count(kind) for kind in set(kinds)}
    assert table().scan(row_filter="kind = 'connection'").to_arrow().num_rows == kinds.count("connection")


def test_a_command_that_is_killed_between_rows_and_progress_has_added_neither(place, monkeypatch):
    from pyiceberg.table import Transaction

    class Killed(BaseException):
        pass

    def die(self, *given):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "set_properties", die)
        with pytest.raises(Killed):
            ship(place)
    assert table().scan().to_arrow().num_rows == 0
    assert ship(place) == 0
    assert seqs() == list(range(COUNT))


def test_of_two_simultaneous_commands_one_must_run_again(place, monkeypatch, capsys):
    append = iceberg._Table.append

    def slow(self, folder, segments):
        with monkeypatch.context() as patch:
            patch.setattr(iceberg._Table, "append", append)
            assert ship(place) == 0
        return append(self, folder, segments)

    with monkeypatch.context() as patch:
        patch.setattr(iceberg._Table, "append", slow)
        assert ship(place) == 2
    assert "another command has written to klamm.events: run this one again" in capsys.readouterr().err
    assert ship(place) == 0
    assert seqs() == list(range(COUNT))


def test_a_stream_ends_before_a_segment_that_differs_from_its_seal(place, capsys):
    path = sealed_segments(place / "spool" / "node-1")[1]
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"ok"', b'"no"', 1))
    assert ship(place) == 1
    assert f"node-1 ends before {path}: it differs from its seal" in capsys.readouterr().err
    assert seqs() == list(range(100))
    path.write_bytes(whole)
    seal = path.with_suffix(SEAL_SUFFIX)
    data = seal.read_bytes()
    seal.unlink()
    assert ship(place) == 1
    seal.write_bytes(data)
    assert ship(place) == 0
    assert seqs() == list(range(COUNT))


def test_a_table_of_an_earlier_klamm_gets_new_fields(place):
    assert ship(place) == 0
    with table().update_schema() as columns:
        columns.delete_column("principal")
    write_sample_spool(place / "spool", sample_events(10, first_seq=COUNT))
    assert ship(place) == 0
    rows = {row["seq"]: row for row in table().scan().to_arrow().to_pylist()}
    assert {rows[seq]["principal"] for seq in range(COUNT)} == {None}
    assert rows[COUNT]["principal"] == next(sample_events(10, first_seq=COUNT))["principal"]


def test_lines_that_are_no_events_are_left_out(place):
    lines = [*map(json.dumps, sample_events(2, first_seq=COUNT)), "no JSON", '{"kind":"request"}']
    (path,) = write_sample_spool(place / "spool", sample_events(2, first_seq=COUNT))
    from tests.spark.conftest import reseal

    path.write_text("\n".join(lines) + "\n")
    reseal([path])
    assert ship(place) == 0
    assert seqs() == list(range(COUNT + 2))


def test_segments_in_a_copied_folder_are_added_once(place, capsys):
    copy = place / "spool" / "node-1.bak"
    shutil.copytree(place / "spool" / "node-1", copy)
    assert ship(place) == 1
    assert f"{copy} is left out: its segments are of node-1" in capsys.readouterr().err
    assert seqs() == list(range(COUNT))


@pytest.mark.parametrize("time_us", [-1, 253_402_300_800_000_000, 2**63 - 1])
def test_a_time_without_a_date_does_not_stop_a_stream(place, time_us):
    from tests.spark.conftest import reseal

    paths = sealed_segments(place / "spool" / "node-1")
    lines = paths[1].read_text().splitlines(keepends=True)
    event = json.loads(lines[3])
    lines[3] = json.dumps({**event, "time_us": time_us}) + "\n"
    paths[1].write_text("".join(lines))
    reseal(paths)
    assert ship(place) == 0
    assert seqs() == [seq for seq in range(COUNT) if seq != event["seq"]]


def test_the_size_of_a_batch_counts_uncompressed_lines(place, monkeypatch):
    (whole,) = iceberg._batches(place / "spool" / "node-1", "")
    for path in whole:
        path.with_name(f"{path.name}.zst").write_bytes(compress(path.read_bytes(), "zstd"))
        path.unlink()
    monkeypatch.setattr(iceberg, "_BATCH_BYTES", 20_000)
    assert [len(batch) for batch in iceberg._batches(place / "spool" / "node-1", "")] == [1, 1, 1]


def test_an_operation_that_a_catalog_lacks_is_reported_in_one_line(place, capsys):
    assert ship(place, "--table", "nothing") == 2
    err = capsys.readouterr().err
    assert err.startswith("klamm audit iceberg: nothing: ")
    assert err.count("\n") == 1


def test_a_catalog_that_cannot_be_opened_is_reported_in_one_line(place, capsys):
    (place / "catalog.db").write_bytes(b"no database" * 100)
    assert ship(place) == 2
    err = capsys.readouterr().err
    assert err.startswith("klamm audit iceberg: klamm.events: ")
    assert err.count("\n") == 1


def test_a_catalog_that_is_not_configured_is_named(place, capsys):
    assert main(["iceberg", "--spool", str(place / "spool"), "--catalog", "none"]) == 2
    assert "klamm audit iceberg: klamm.events: " in capsys.readouterr().err
