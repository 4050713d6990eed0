"""Tests of `verify`: it names gaps, and says whether the server has reported them."""

import json

import pytest
from deltalake import write_deltalake

from klamm_spark.lake.layout import Lake
from klamm_spark.lake.ranges import Ranges
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.layout import SEAL_SUFFIX
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import EVENTS, settings_of

BOOT = "019b8ff8d000c0ffee00"


@pytest.fixture
def verify():
    def run(pipeline):
        from klamm_spark.lake import verify

        said = []
        return verify.run(None, pipeline, say=said.append), said

    return run


def test_a_complete_lake_is_sound(shipped, verify):
    code, said = verify(shipped.pipeline)
    assert code == 0
    assert f"node-1/{BOOT}: spool {EVENTS:,} events (0-{EVENTS - 1}), lake {EVENTS:,} events (0-{EVENTS - 1})" in said
    assert "quarantine: 4 lines that are not events" in said


def test_missing_events_are_named_with_their_place(ship, verify, tmp_path):
    settings = settings_of(tmp_path / "lake")
    gap = {"kind": "audit_gap", "action": "dropped", "outcome": "error", "gap_boot": BOOT}
    events = list(sample_events(100))
    events[60] = {key: events[60][key] for key in ("schema_version", "event_id", "node", "boot", "seq", "time_us")}
    events[60] |= gap | {"gap_first_seq": 50, "gap_last_seq": 54, "gap_count": 5}
    events = [event for event in events if event["seq"] not in (20, *range(50, 55))]
    write_sample_spool(tmp_path / "spool", events)
    ship(tmp_path / "spool", settings)
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=100))
    code, said = verify(Pipeline(tmp_path / "spool", settings))
    assert code == 1
    assert "  not shipped: 100-109" in said
    assert "  lost, and no audit_gap reports it: 20" in said
    assert "  reported by audit_gap: 50-54" in said


def test_events_that_retention_has_deleted_are_not_reported_as_lost(ship, verify, tmp_path):
    settings = settings_of(tmp_path / "lake")
    first, _ = write_sample_spool(tmp_path / "spool", sample_events(20), events_per_segment=10)
    ship(tmp_path / "spool", settings)
    first.unlink()
    code, said = verify(Pipeline(tmp_path / "spool", settings))
    assert (code, "  deleted from the spool: 0-9" in said) == (0, True)


def test_an_event_that_occurs_twice_is_found(verify, ship, tmp_path):
    settings = settings_of(tmp_path / "lake")
    write_sample_spool(tmp_path / "spool", sample_events(5))
    ship(tmp_path / "spool", settings)
    table = Lake(tmp_path / "lake").table()
    write_deltalake(table, table.to_pyarrow_table(), mode="append")
    code, said = verify(Pipeline(tmp_path / "spool", settings))
    assert (code, "  more than once in the lake: 0-4" in said) == (1, True)


def remove(*paths):
    for path in paths:
        path.unlink()
        path.with_suffix(SEAL_SUFFIX).unlink()


def test_segments_deleted_before_shipping_are_named(ship, verify, tmp_path):
    settings = settings_of(tmp_path / "lake")
    spool, later = tmp_path / "spool", "019b8ff8d001c0ffee00"

    def write(node, boots):
        return [
            write_sample_spool(
                spool, [event(node, boot, seq) for seq in range(30)], events_per_segment=10, final=boot != later
            )
            for boot in boots
        ]

    (head,) = write("head", [later])
    tail, _ = write("tail", [BOOT, later])
    whole, _ = write("whole", [BOOT, later])
    first, middle, last = write("middle", ["019b8ff8cfffc0ffee00", BOOT, later])
    remove(head[0], tail[2], *whole, *middle)
    ship(spool, settings)
    code, said = verify(Pipeline(spool, settings))
    text = "\n".join(said)
    assert code == 1
    assert (
        f"head/{later}: spool 20 events (10-29), lake 20 events (10-29)\n  lost, and no audit_gap reports it: 0-9"
        in text
    )
    assert "of head; of those before it 0 are in the lake, and no audit_gap reports the others" in text
    assert (
        f"tail/{BOOT}: spool 20 events (0-19), lake 20 events (0-19)\n"
        "  no final seal, and no audit_gap of a crash: whether there were events from 20 on is unknown" in text
    )
    assert f"tail/{later}-{0:020d}: 1 segments between it and {tail[1].stem} were removed" in text
    assert f"broken chain: {later}-{0:020d} is segment 3 of whole; of those before it 0 are in the lake" in text
    assert f"middle/{later}-{0:020d}: 3 segments between it and {first[2].stem} were removed" in text


def test_a_spool_that_retention_and_a_crash_have_shortened_is_sound(ship, verify, tmp_path):
    settings = settings_of(tmp_path / "lake")
    spool, later = tmp_path / "spool", "019b8ff8d001c0ffee00"
    old = write_sample_spool(spool, [event("n", BOOT, seq) for seq in range(30)], events_per_segment=10)
    deleted = {"action": "segments_deleted", "gap_boot": BOOT, "gap_first_seq": 0, "gap_last_seq": 9, "gap_count": 10}
    crash = {"action": "unclean_stop", "gap_boot": BOOT, "gap_first_seq": 30}
    remove(old[0])
    write_sample_spool(spool, [event("n", later, seq, **gap) for seq, gap in enumerate((crash, deleted))])
    ship(spool, settings)
    # The next segment is open, and reports a number that was dropped.
    dropped = event("n", later, 3, action="dropped", gap_boot=later, gap_first_seq=2, gap_last_seq=2, gap_count=1)
    (spool / "n" / f"{later}-{3:020d}.open").write_text(json.dumps(dropped) + '\n{"kind":"audit_gap"')
    code, said = verify(Pipeline(spool, settings))
    assert code == 0, said
    assert "  reported by audit_gap: 0-9" in said
    assert "  reported by audit_gap: a crash took everything from 30 on" in said
    assert "  reported by an audit_gap that is not sealed yet: 2" in said


def event(node, boot, seq, **gap):
    required = {"schema_version": 1, "event_id": f"{node}/{boot}/{seq}", "node": node, "boot": boot, "seq": seq}
    kind = {"kind": "audit_gap", "outcome": "error"} if gap else {"kind": "admin", "outcome": "ok"}
    return required | {"time_us": 1_767_225_600_000_000 + seq, "action": "server_started"} | kind | gap


def test_a_changed_segment_is_named(ship, verify, tmp_path):
    settings = settings_of(tmp_path / "lake")
    paths = write_sample_spool(tmp_path / "spool", sample_events(20), events_per_segment=10)
    ship(tmp_path / "spool", settings)
    paths[0].write_bytes(paths[0].read_bytes().replace(b"orders-1", b"orders-2"))
    code, said = verify(Pipeline(tmp_path / "spool", settings))
    assert code == 1
    assert f"broken chain: {paths[0]} was changed: its SHA-256 differs from its seal" in said


def test_spool_and_lake_are_compared_without_spark():
    from klamm_spark.lake.verify import Ends, NodeBoot, ReportedGaps, compare

    life, other = NodeBoot("n", "b"), NodeBoot("n", "a")
    spool, lake = {life: Ranges([(1, 9), (20, 29)])}, {life: Ranges([(5, 9)])}
    reported = ReportedGaps({life: Ranges([(10, 12)]), other: Ranges([(5, 9)])}, {other: 20})
    findings = compare(spool, lake, reported, {}, Ends({life: 32}, frozenset([life, other])))
    found = findings[life]
    assert (found.not_shipped, found.reported) == (Ranges([(1, 4), (20, 29)]), Ranges([(10, 12)]))
    assert (found.lost, found.sound) == (Ranges([(0, 0), (13, 19), (30, 31)]), False)
    assert (found.crashed_from, found.unended_from) == (None, 32)
    found = findings[other]
    assert (found.reported, found.lost) == (Ranges([(5, 9)]), Ranges([(0, 4), (10, 19)]))
    assert (found.crashed_from, found.unended_from) == (20, None)


def test_missing_numbers_are_explained_by_the_strongest_report():
    from klamm_spark.lake.verify import Ends, NodeBoot, ReportedGaps, compare

    life = NodeBoot("n", "b")
    once, unsealed = {life: Ranges([(0, 9), (40, 49)])}, {life: Ranges([(10, 19), (30, 39)])}
    reported = ReportedGaps({life: Ranges([(5, 14)])}, shipped=once, unsealed=unsealed)
    found = compare({}, {life: Ranges([(35, 44)])}, reported, {}, Ends({}, frozenset()))[life]
    assert (found.dropped, found.reported) == (Ranges([(0, 9), (45, 49)]), Ranges([(10, 14)]))
    assert (found.unsealed, found.lost) == (Ranges([(15, 19), (30, 34)]), Ranges([(20, 29)]))
    assert not found.sound
    found = compare({}, {life: Ranges([(0, 49)])}, reported, {}, Ends({}, frozenset()))[life]
    assert found.sound


def test_a_gap_that_ends_before_it_begins_is_named_and_excuses_nothing():
    from klamm_spark.lake.verify import NodeBoot, ReportedGaps, add_gaps

    reported, gap = ReportedGaps(), {"event_id": "n/b/9", "node": "n", "boot": "b" * 20}
    add_gaps(reported, [gap | {"gap_first_seq": 5, "gap_last_seq": 1}, gap | {"gap_first_seq": 3, "gap_last_seq": 3}])
    assert reported.wrong == ["n/b/9 reports a gap from 5 to 1, which is none"]
    assert (str(reported.ranges[NodeBoot("n", "b" * 20)]), reported.crashed) == ("3", {})
