"""Each seal names the newest seals of the server's other streams, so none of these streams can be removed.

Without Spark.
"""

import random
from dataclasses import replace

import pytest

from klamm_spark.lake.sisters import check_sisters
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal, folder_name, segment_files, stream_mark, stream_of
from tests.unit.audit.observing import Observing

NODE = "node-1"
MARKS = ("", "a", "s")


@pytest.fixture
def seals(tmp_path, seed):
    """Return the seals of a server that seals a dozen segments of its three streams in any order, with restarts."""
    choose = random.Random(seed)
    written = dict.fromkeys(MARKS, 0)
    for life in range(2):
        audit = Observing(tmp_path, segment_age_ms=10)
        # Each stream occurs at least once. The requests are last, and name seals of both other streams.
        names = [*MARKS, *choose.choices(MARKS, k=8), ""]
        for mark in names:
            spool = audit.sink.streams[stream_of(mark)].spool
            seq = written[mark] = written[mark] + 1
            spool.write(b"{}\n", seq, seq, 1)
            audit.clock.advance_ms(20)
            spool.tick()
        audit.sink.close()
        assert life < 2
    folders = [tmp_path / folder_name(NODE, stream_of(mark)) for mark in MARKS]
    found = [Seal.read(path) for folder in folders for path in segment_files(folder, SEAL_SUFFIX)]
    return {seal.segment: seal for seal in found}


def of_stream(seals, mark):
    return [name for name in sorted(seals) if stream_mark(seals[name].boot) == mark]


def without(seals, names):
    return {name: seal for name, seal in seals.items() if name not in names}


def test_unchanged_seals_have_no_missing_stream(seals):
    assert check_sisters(seals, (), ()) == ([], [])


@pytest.mark.parametrize("mark", ["a", "s"])
def test_a_removed_stream_is_named(seals, mark):
    names, folder = of_stream(seals, mark), folder_name(NODE, stream_of(mark))
    left = without(seals, names)
    breaks, behind = check_sisters(left, (), ())
    assert (len(breaks), behind) == (1, [])
    assert breaks[0].startswith(f"{folder}: the lake has 0 of its seals, and ")
    # A segment in the spool may not be shipped yet, and a deletion by retention is reported.
    breaks, behind = check_sisters(left, {(NODE, mark)}, ())
    assert (breaks, len(behind)) == ([], 1)
    assert check_sisters(left, (), {(NODE, mark)}) == ([], [])


@pytest.mark.parametrize("mark", ["a", "s"])
def test_a_removed_end_of_a_stream_is_named(seals, mark):
    names = of_stream(seals, mark)
    for left in range(1, len(names)):
        breaks, behind = check_sisters(without(seals, names[left:]), (), ())
        assert (breaks, len(behind)) == ([], 1)
        assert behind[0].startswith(f"{folder_name(NODE, stream_of(mark))}: the lake has {left} of its seals, and ")


def test_a_rewritten_stream_is_named(seals):
    changed = {
        name: replace(seal, chain="0" * 64) if stream_mark(seal.boot) == "s" else seal for name, seal in seals.items()
    }
    breaks, _ = check_sisters(changed, (), ())
    assert breaks
    assert all(" was replaced: " in line for line in breaks)


@pytest.mark.parametrize("text", ["s", "s:1", "s:x:00", "s:1:00:2", ","])
def test_a_seal_with_an_invalid_name_of_another_seal_cannot_be_read(seals, text):
    seal = next(iter(seals.values()))
    with pytest.raises(ValueError, match=r"unpack|literal"):
        Seal.parse(replace(seal, sisters=f"{text},{text}" if text != "," else "s:1:0,x").to_json())
