"""The numbers of a segment are those that parsing each line gives, whether lines are parsed or not."""

import json
import random

import pytest

from klamm_spark.events.event import AUDIT_GAP
from klamm_spark.lake.ranges import Ranges
from klamm_spark.spool.chain import read_folder
from klamm_spark.spool.layout import SEAL_SUFFIX
from klamm_spark.spool.numbers import numbers_of
from tests.audit_samples import line_of, sample_events, write_sample_spool

EVENTS = 2_000


@pytest.fixture
def lines():
    return list(map(line_of, sample_events(EVENTS, first_seq=7, seed=3)))


def parsed(lines):
    """Return `(node, boot, seq)` of each line that is an object with these fields."""
    found = []
    for line in lines:
        try:
            event = json.loads(line)
            found.append((event["node"], event["boot"], event["seq"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return sorted(found)


def single(found):
    return sorted((node, boot, seq) for node, boot, first, last in found.seqs for seq in range(first, last + 1))


def test_the_numbers_are_those_of_the_lines_and_their_gaps(lines):
    events = list(map(json.loads, lines))
    found = numbers_of(b"".join(lines))
    assert found.seqs == [("node-1", events[0]["boot"], 7, 7 + EVENTS - 1)]
    gaps = [event for event in events if event["kind"] == AUDIT_GAP]
    assert gaps
    assert found.gaps == gaps


def test_a_name_may_have_any_characters():
    for node in ("50%", "a%d", "ä", 'n"', "n\\"):
        assert numbers_of(b"".join(map(line_of, sample_events(3, node=node, boot="b")))).seqs == [(node, "b", 0, 2)]


def without_one(lines, at):
    return [*lines[:at], *lines[at + 1 :]]


def doubled(lines, at):
    return [*lines[:at], lines[at - 1], *lines[at + 1 :]]


def swapped(lines, at):
    return [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]


def replaced(old, new):
    return lambda lines, at: [*lines[:at], lines[at].replace(old, new), *lines[at + 1 :]]


def empty(lines, at):
    return [*lines[:at], b"\n", *lines[at:]]


def torn(lines, at):
    return [*lines[:at], lines[at][:-9] + b"\n", *lines[at + 1 :]]


@pytest.mark.parametrize(
    "change",
    [
        *(without_one, doubled, swapped, empty, torn),
        replaced(b'"node":"node-1"', b'"node":"node-2"'),
        replaced(b'"boot":"0', b'"boot":"1'),
        replaced(b'"schema_version":', b'"schema_version":9'),
        replaced(b'"seq":', b'"seq": '),
        replaced(b',"seq":', b',"seq":0'),
        replaced(b'"event_id":"node-1/', b'"event_id":"node-1//'),
    ],
)
def test_lines_that_do_not_follow_one_another_are_parsed(lines, change):
    choose = random.Random(5)
    for at in (1, EVENTS - 2, *(choose.randrange(1, EVENTS - 1) for _ in range(4))):
        changed = change(lines, at)
        assert single(numbers_of(b"".join(changed))) == parsed(changed), at


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n", b"no JSON}\n", b"{}\n", b"[]\n", b'{"node":"n","boot":"b","seq":0}\n', b"[" * 99_999 + b"}\n"),
        b'{"schema_version":1,"event_id":"n/b/-1","node":"n","boot":"b","seq":-1,"time_us":1}\n',
        b'{"schema_version":1,"event_id":"n/b/0","node":"n","boot":"b","seq":0,"time_us":1}\n{"torn',
        b'{"schema_version":1,"event_id":"n/b/True","node":"n","boot":"b","seq":true,"time_us":1}\n',
    ],
)
def test_bytes_that_are_not_a_servers_segment_are_parsed(data):
    expected = [one for one in parsed(data.split(b"\n")) if type(one[2]) is int]
    assert single(numbers_of(data)) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("gap_first_seq", "5"), ("gap_last_seq", 1.5), ("gap_last_seq", 1 << 63), ("gap_boot", 7), ("action", [])],
)
def test_a_gap_with_fields_of_other_types_is_ignored(name, value):
    events = [*sample_events(3)]
    gap = {"kind": AUDIT_GAP, "action": "dropped", "gap_boot": "b", "gap_first_seq": 1, "gap_last_seq": 2}
    events[1] |= gap
    assert numbers_of(b"".join(map(line_of, events))).gaps[0]["gap_last_seq"] == 2
    events[1][name] = value
    assert not numbers_of(b"".join(map(line_of, events))).gaps


def test_a_folder_has_the_numbers_of_each_segment_that_has_a_seal(tmp_path):
    paths = write_sample_spool(tmp_path, sample_events(100), events_per_segment=10)
    changed, unsealed = paths[2:8:5]
    lines = changed.read_bytes().splitlines(keepends=True)
    changed.write_bytes(b"".join(doubled(lines, 4)))
    for path in (unsealed, *paths[3:6]):
        path.with_suffix(SEAL_SUFFIX).unlink()
    found = Ranges((first, last) for *_, first, last in read_folder(paths[0].parents[1]).seqs)
    assert list(found) == [(0, 23), (25, 29), (60, 69), (80, 99)]


def test_gaps_count_only_in_segments_that_match_their_seals(tmp_path):
    events = [*sample_events(20)]
    for event in (events[3], events[13]):
        event |= {"kind": AUDIT_GAP, "action": "dropped", "gap_boot": "b", "gap_first_seq": 1, "gap_last_seq": 2}
    paths = write_sample_spool(tmp_path, events, events_per_segment=10)
    paths[1].write_bytes(paths[1].read_bytes().replace(b'"gap_last_seq":2', b'"gap_last_seq":3'))
    assert [gap["seq"] for gap in read_folder(paths[0].parents[1]).sealed_gaps] == [3]
