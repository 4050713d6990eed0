"""Following a spool to the line, while it is written, sealed, compressed and deleted."""

import gzip

import cramjam
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klamm_spark.spool.layout import SegmentName
from klamm_spark.spool.offsets import DataLossError, SpoolFollower, earlier
from tests.audit_samples import sample_events, write_sample_spool

BOOT = "019b8ff8d000c0ffee00"


@pytest.fixture
def node(tmp_path):
    folder = tmp_path / "node-1"
    folder.mkdir()
    return folder


def segment(first_seq):
    return SegmentName(BOOT, first_seq).stem


def read(follower, start, end):
    return b"".join(follower.read(piece) for piece in follower.pieces(start, end))


def test_a_torn_last_line_waits_for_its_end(tmp_path, node):
    follower = SpoolFollower(tmp_path, live=True)
    path = node / f"{segment(0)}.open"
    path.write_bytes(b"one\ntwo\nthr")
    first = follower.latest({})
    assert read(follower, {}, first) == b"one\ntwo\n"
    path.write_bytes(b"one\ntwo\nthree\n")
    assert read(follower, first, follower.latest(first)) == b"three\n"


def test_without_live_only_sealed_segments_count(tmp_path, node):
    (node / f"{segment(0)}.jsonl").write_bytes(b"one\n")
    (node / f"{segment(1)}.open").write_bytes(b"two\n")
    follower = SpoolFollower(tmp_path, live=False)
    assert read(follower, {}, follower.latest({})) == b"one\n"


def test_nothing_new_is_the_same_place(tmp_path, node):
    (node / f"{segment(0)}.open").write_bytes(b"one\n")
    follower = SpoolFollower(tmp_path, live=True)
    place = follower.latest({})
    assert follower.latest(place) == place
    assert follower.pieces(place, place) == []


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".jsonl", bytes), (".jsonl.gz", gzip.compress), (".jsonl.zst", lambda data: bytes(cramjam.zstd.compress(data)))],
)
def test_a_place_outlives_sealing_and_compression(tmp_path, node, suffix, pack):
    follower = SpoolFollower(tmp_path, live=True)
    path = node / f"{segment(0)}.open"
    path.write_bytes(b"one\ntwo\n")
    place = follower.latest({})
    path.unlink()
    (node / f"{segment(0)}{suffix}").write_bytes(pack(b"one\ntwo\nthree\n"))
    (node / f"{segment(3)}.open").write_bytes(b"four\n")
    assert read(follower, place, follower.latest(place)) == b"three\nfour\n"


def test_both_names_of_a_segment_are_read_once(tmp_path, node):
    for suffix in (".open", ".jsonl"):
        (node / f"{segment(0)}{suffix}").write_bytes(b"one\n")
    follower = SpoolFollower(tmp_path, live=True)
    assert read(follower, {}, follower.latest({})) == b"one\n"


@pytest.fixture(scope="module")
def sample_spool(tmp_path_factory):
    """A spool of one node and its segments."""
    spool = tmp_path_factory.mktemp("spool")
    return spool, write_sample_spool(spool, sample_events(60), events_per_segment=17)


def read_with_limit(sample_spool, limit, live):
    spool, paths = sample_spool
    follower, place, lines = SpoolFollower(spool, live), {}, b""
    while (end := follower.latest(place, limit)) != place:
        lines += read(follower, place, end)
        place = end
    assert lines == b"".join(path.read_bytes() for path in paths)


@given(limit=st.integers(1, 30_000), live=st.booleans())
@example(limit=15_171, live=True)  # the first segment's size
def test_with_a_limit_every_line_comes_once_and_in_order(sample_spool, limit, live):
    read_with_limit(sample_spool, limit, live)


@given(whole_segments=st.integers(0, 4), more_bytes=st.integers(-2, 2), live=st.booleans())
@example(whole_segments=1, more_bytes=0, live=True)
@example(whole_segments=2, more_bytes=0, live=True)
def test_a_limit_may_end_at_the_end_of_a_segment(sample_spool, whole_segments, more_bytes, live):
    size_bytes = sum(path.stat().st_size for path in sample_spool[1][:whole_segments])
    read_with_limit(sample_spool, max(1, size_bytes + more_bytes), live)


def test_what_was_deleted_before_it_was_read_is_not_passed_over(tmp_path):
    paths = write_sample_spool(tmp_path, sample_events(30), events_per_segment=10)
    follower = SpoolFollower(tmp_path, live=True)
    place = follower.latest({}, 100)
    paths[0].unlink()
    with pytest.raises(DataLossError, match="deleted before it was read"):
        follower.pieces(place, follower.latest(place))
    assert not follower.holds("node-1", place["node-1"])


def test_the_earlier_of_two_places():
    one = {"a": {"segment": "x", "bytes": 5}, "b": {"segment": "y", "bytes": 1}}
    other = {"a": {"segment": "x", "bytes": 3}, "b": {"segment": "z", "bytes": 0}, "c": {"segment": "x", "bytes": 1}}
    assert earlier(one, other) == {"a": {"segment": "x", "bytes": 3}, "b": {"segment": "y", "bytes": 1}}
