"""Tests of the numbers that `verify` compares: they are those of the lines and rows, whatever the seals state."""

import random
from collections import Counter, defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm_spark.lake import compact
from klamm_spark.lake.appends import Named, append
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.ranges import Ranges
from klamm_spark.lake.rows import LakeRows, NodeBoot
from klamm_spark.lake.seals import KnownSeals
from klamm_spark.lake.tasks import Tasks
from klamm_spark.lake.written import FILE, DataFile
from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import line_of, sample_events, write_sample_spool
from tests.spark.conftest import reseal, settings_of

BOOT = "019b8ff8d000c0ffee00"


def verified(spool, settings):
    from klamm_spark.lake import verify

    said = []
    return verify.run(None, Pipeline(spool, settings), say=said.append), said


def ranges_of(numbers):
    return {boot: Ranges((each, each) for each in found) for boot, found in numbers.items() if found}


def lake_of(folder, files):
    """Return a lake with files whose rows have these numbers of a node and a boot."""
    lake, found = Lake(folder), []
    lake.events.mkdir(parents=True)
    for number, rows in enumerate(files):
        path = lake.events / f"{number}.parquet"
        there = [dict(zip(("node", "boot", "seq"), row, strict=True)) for row in rows]
        pq.write_table(pa.Table.from_pylist(there, FILE), path)
        found.append(DataFile(path.name, None, None, path.stat().st_size, f'{{"numRecords":{len(rows)}}}'))
    append(lake, found, Named({}, {}))
    return lake


def test_ranges_of_numbers_equal_plain_sets(tmp_path, seed):
    choose = random.Random(seed)
    edges = [0, 63, 64, 65, 127, 128, -1, -64, -65, (1 << 63) - 1, -(1 << 63)]
    rows = [("n", "edges", seq) for seq in edges]
    for number in range(8):
        boot, start = f"b{number}", choose.choice([0, 1, 63, 64, 1 << 40, -100])
        some = [start + each for each in range(choose.randrange(1, 400)) if choose.random() < number / 7]
        some += choose.sample(some, len(some) // 50) if number % 2 else []
        rows += [(choose.choice("nm"), boot, seq) for seq in some]
    choose.shuffle(rows)
    rows += [("n", "edges", None), (None, "edges", 1), ("n", None, 1)]
    found = LakeRows.read(lake_of(tmp_path, [rows[at::3] for at in range(3)]), Tasks())
    expected, several = defaultdict(set), defaultdict(set)
    for (node, boot, seq), count in Counter(rows).items():
        if None not in (node, boot, seq):
            expected[NodeBoot(node, boot)].add(seq)
            several[NodeBoot(node, boot)] |= {seq} if count > 1 else set()
    assert found.ranges == ranges_of(expected)
    assert found.doubled == ranges_of(several)


def test_the_work_for_many_files_grows_linearly_with_their_numbers(tmp_path, monkeypatch):
    """Every second number is forgotten. Joining one file after the other took time by the square of their number."""
    handled, make = [], Ranges.__init__

    def counted(ranges, pairs=()):
        pairs = list(pairs)
        handled.append(len(pairs))
        make(ranges, pairs)

    monkeypatch.setattr(Ranges, "__init__", counted)
    files, each = 40, 50
    lake = lake_of(tmp_path, [[("n", "b", 2 * (at * each + one)) for one in range(each)] for at in range(files)])
    found = LakeRows.read(lake, Tasks())
    assert found.ranges[NodeBoot("n", "b")].count() == files * each
    assert sum(handled) <= 3 * files * each


@pytest.mark.parametrize("column", ["node", "bad_line"])
def test_a_file_with_invalid_text_is_named(tmp_path, column):
    lake = lake_of(tmp_path, [[("n", "b", 1)], [("n", "b", 2)]])
    path = lake.events / "0.parquet"
    rows = pq.ParquetFile(path).read()
    no_text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(rows.set_column(FILE.get_field_index(column), FILE.field(column), no_text), path)
    found = LakeRows.read(lake, Tasks())
    assert [problem.partition(" cannot be read: ")[0] for problem in found.problems] == [str(path)]
    assert found.ranges == ranges_of({NodeBoot("n", "b"): {2}})


@pytest.mark.parametrize("lies", [False, True])
def test_a_missing_number_is_named_even_if_the_seal_fits(ship, tmp_path, lies):
    settings = settings_of(tmp_path / "lake")
    paths = write_sample_spool(tmp_path / "spool", sample_events(30), events_per_segment=10)
    events = list(sample_events(30))
    lines = [line_of(event) for event in events[10:20]]
    # The seal has the right count and the right first and last number, but 14 occurs twice and 15 is missing.
    lines[5] = line_of(events[14]) if lies else line_of(events[15] | {"seq": 14, "event_id": f"node-1/{BOOT}/14"})
    paths[1].write_bytes(b"".join(lines))
    reseal(paths)
    ship(tmp_path / "spool", settings)
    code, said = verified(tmp_path / "spool", settings)
    assert code == 1
    assert "  lost, and no audit_gap reports it: 15" in said
    assert "  more than once in the lake: 14" in said
    size = "29 events (0-14, 16-29)"
    assert f"node-1/{BOOT}: spool {size}, lake {size}" in said


def test_segments_that_overlap_are_named(ship, tmp_path):
    settings = settings_of(tmp_path / "lake")
    write_sample_spool(tmp_path / "spool", sample_events(10))
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=8))
    ship(tmp_path / "spool", settings)
    code, said = verified(tmp_path / "spool", settings)
    assert (code, "  more than once in the lake: 8-9" in said) == (1, True)


def test_a_gap_that_only_the_spool_reports_excuses_missing_numbers(ship, tmp_path):
    settings = settings_of(tmp_path / "lake")
    events = list(sample_events(20))
    gap = {"kind": "audit_gap", "action": "dropped", "outcome": "error", "gap_boot": BOOT}
    required = {key: events[15][key] for key in ("schema_version", "event_id", "node", "boot", "seq", "time_us")}
    events[15] = required | gap | {"gap_first_seq": 5, "gap_last_seq": 7, "gap_count": 3}
    del events[5:8]
    write_sample_spool(tmp_path / "spool", events[:5])
    ship(tmp_path / "spool", settings)
    write_sample_spool(tmp_path / "spool", events[5:])
    code, said = verified(tmp_path / "spool", settings)
    assert code == 3
    assert said[-1] == "the lake is behind: what it has is as it was written, and the rest is in the spool"
    assert "  not shipped: 8-19" in said
    assert "  reported by audit_gap: 5-7" in said
    assert not any("lost" in line for line in said)


@pytest.mark.parametrize("more", [0, 1], ids=["alone", "with others"])
def test_rows_with_nan_or_infinity_count_as_unchanged(ship, tmp_path, more):
    """klamm writes no such number. Another program may, and then the line is kept."""
    settings = settings_of(tmp_path / "lake")
    values = ["NaN", "Infinity", "-Infinity", "1e999", "-0.0", "1e308"]
    events = list(sample_events(12))
    lines = [line_of(event | {"total_time_ms": 1.5}) for event in events]
    for at, value in enumerate([*values, *more * ["0.5"] * 6]):
        lines[at] = lines[at].replace(b'"total_time_ms":1.500', b'"total_time_ms":' + value.encode())
    (path,) = write_sample_spool(tmp_path / "spool", events)
    path.write_bytes(b"".join(lines))
    reseal([path])
    ship(tmp_path / "spool", settings)
    code, said = verified(tmp_path / "spool", settings)
    assert code == 0, said
    # The file has statistics of all columns, as another program may write them.
    table = Lake(tmp_path / "lake").table()
    table.alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "-1"})
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=12))
    ship(tmp_path / "spool", settings)
    compact.run(Pipeline(None, settings), keep_hours=168, say=lambda line: None)
    code, said = verified(tmp_path / "spool", settings)
    assert code == 0, said


def test_numbers_of_a_segment_in_the_quarantine_count_as_not_shipped(ship, tmp_path, monkeypatch):
    """The rows of the quarantine give the bytes of the segment, but they have no numbers."""
    from klamm_spark.lake import verify

    settings = settings_of(tmp_path / "lake")
    events = [event | ({"time_us": -1} if 10 <= event["seq"] < 20 else {}) for event in sample_events(30)]
    write_sample_spool(tmp_path / "spool", events, events_per_segment=10)
    ship(tmp_path / "spool", settings)
    code, said = found = verified(tmp_path / "spool", settings)
    assert (code, "  not shipped: 10-19" in said) == (3, True)
    monkeypatch.setattr(verify, "read_seals", lambda lake: KnownSeals({}, []))
    assert verified(tmp_path / "spool", settings) == found


def attack(choose, paths, files):
    """Change a segment, its seal or rows of the lake, or take one away."""
    path = choose.choice(paths)
    kind = choose.randrange(7)
    if kind == 0:
        path.unlink(missing_ok=True)
    elif kind == 1 and path.exists():
        lines = path.read_bytes().splitlines(keepends=True)
        choose.shuffle(lines)
        path.write_bytes(b"".join(lines[choose.randrange(2) :]))
    elif kind == 2:
        seal = path.with_suffix(".seal")
        seal.write_bytes(seal.read_bytes().replace(b'"events":10', b'"events":11'))
    elif kind == 3 and path.exists():
        path.write_bytes(path.read_bytes()[:-1])
    elif kind > 3:
        file = choose.choice(files)
        rows = pq.ParquetFile(file).read().to_pylist()
        if kind == 4:
            del rows[choose.randrange(len(rows))]
        elif kind == 5:
            rows[choose.randrange(len(rows))]["seq"] += choose.choice([1, 1000])
        else:
            choose.shuffle(rows)
        pq.write_table(pa.Table.from_pylist(rows, FILE), file)


@pytest.mark.parametrize("number", range(12))
def test_bytes_that_are_in_the_lake_have_the_numbers_that_reading_them_gives(ship, tmp_path, seed, number, monkeypatch):
    from klamm_spark.lake import verify

    choose, settings = random.Random(f"{seed} {number}"), settings_of(tmp_path / "lake")
    events = [event for event in sample_events(60) if choose.random() < 0.97 or event["seq"] % 10 in (0, 9)]
    paths = [
        path
        for at in range(0, 60, 10)
        for path in write_sample_spool(tmp_path / "spool", [event for event in events if at <= event["seq"] < at + 10])
    ]
    ship(tmp_path / "spool", settings)
    files = sorted((tmp_path / "lake" / "events").rglob("*.parquet"))
    for _ in range(choose.randrange(4)):
        attack(choose, paths, files)
    found = verified(tmp_path / "spool", settings)
    monkeypatch.setattr(verify, "read_seals", lambda lake: KnownSeals({}, []))
    assert verified(tmp_path / "spool", settings) == found
