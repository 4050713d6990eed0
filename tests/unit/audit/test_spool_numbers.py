"""The numbers of a segment from its bytes are those that parsing gives, or are not known."""

import json
import random

import pytest

from klamm_spark.events.event import AUDIT_GAP
from klamm_spark.spool.chain import FileContent, read_folder
from klamm_spark.spool.layout import SEAL_SUFFIX
from klamm_spark.spool.numbers import numbers_of
from tests.audit_samples import line_of, sample_events, write_sample_spool

EVENTS = 2_000


@pytest.fixture
def lines():
    return list(map(line_of, sample_events(EVENTS, first_seq=7, seed=3)))


def test_they_are_those_of_the_lines_with_the_gaps(lines):
    events = list(map(json.loads, lines))
    found = numbers_of(b"".join(lines))
    assert (found.node, found.boot, found.first_seq, found.last_seq) == ("node-1", events[0]["boot"], 7, 7 + EVENTS - 1)
    gaps = [event for event in events if event["kind"] == AUDIT_GAP]
    assert gaps
    assert list(found.gaps) == gaps


def test_a_name_may_have_any_characters():
    for node in ("50%", "a%d", "ä", 'n"', "n\\"):
        found = numbers_of(b"".join(map(line_of, sample_events(3, node=node, boot="b"))))
        assert (found.node, found.boot, found.first_seq, found.last_seq) == (node, "b", 0, 2)


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
def test_lines_that_do_not_follow_one_another_must_be_parsed(lines, change):
    choose = random.Random(5)
    for at in (1, EVENTS - 2, *(choose.randrange(1, EVENTS - 1) for _ in range(20))):
        assert numbers_of(b"".join(change(lines, at))) is None, at


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n", b"no JSON}\n", b"{}\n", b"[]\n", b'{"node":"n","boot":"b","seq":0}\n', b"[" * 99_999 + b"}\n"),
        b'{"schema_version":1,"event_id":"n/b/-1","node":"n","boot":"b","seq":-1,"time_us":1}\n',
        b'{"schema_version":1,"event_id":"n/b/0","node":"n","boot":"b","seq":0,"time_us":1}\n{"torn',
        b'{"schema_version":1,"event_id":"n/b/True","node":"n","boot":"b","seq":true,"time_us":1}\n',
    ],
)
def test_what_is_no_segment_of_a_server_must_be_parsed(data):
    assert numbers_of(data) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("gap_first_seq", "5"), ("gap_last_seq", 1.5), ("gap_last_seq", 1 << 63), ("gap_boot", 7), ("action", [])],
)
def test_a_gap_whose_fields_have_other_types_must_be_parsed(name, value):
    events = [*sample_events(3)]
    gap = {"kind": AUDIT_GAP, "action": "dropped", "gap_boot": "b", "gap_first_seq": 1, "gap_last_seq": 2}
    events[1] |= gap
    assert numbers_of(b"".join(map(line_of, events))).gaps[0]["gap_last_seq"] == 2
    events[1][name] = value
    assert numbers_of(b"".join(map(line_of, events))) is None


def test_a_folder_has_the_numbers_of_each_segment_that_has_a_seal(tmp_path):
    paths = write_sample_spool(tmp_path, sample_events(100), events_per_segment=10)
    changed, unsealed = paths[2:8:5]
    lines = changed.read_bytes().splitlines(keepends=True)
    changed.write_bytes(b"".join(doubled(lines, 4)))
    for path in (unsealed, *paths[3:6]):
        path.with_suffix(SEAL_SUFFIX).unlink()
    found = read_folder(paths[0].parents[1]).numbers
    assert found.keys() == {path.name for path in paths} - {changed.name, unsealed.name} - {p.name for p in paths[3:6]}
    assert [numbers.first_seq for _, numbers in sorted(found.items())] == [0, 10, 60, 80, 90]


def test_digests_are_those_of_the_segments_that_are_asked_for_in_whatever_number(tmp_path):
    paths = write_sample_spool(tmp_path, sample_events(60), events_per_segment=2)
    alone = FileContent()
    expected = {path: alone.digest(path) for path in paths}
    alone.close()
    for step in (1, 3, 12, 29):
        content = FileContent()
        content.begin(paths[0].parent, paths)
        assert {path: content.digest(path) for path in paths[::step]} == {p: expected[p] for p in paths[::step]}
        content.close()
    assert len({digest.sha256 for digest in expected.values()}) == len(paths)
