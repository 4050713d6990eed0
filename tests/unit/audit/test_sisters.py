"""Seals name the newest seals of the server's other streams: none of these can be taken away whole. Without Spark."""

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
    """Of a server that seals a dozen segments of its three streams in any order, and starts again between them."""
    choose = random.Random(seed)
    written = dict.fromkeys(MARKS, 0)
    for life in range(2):
        audit = Observing(tmp_path, segment_age_ms=10)
        # Each stream once at least, and the requests last: they name what both others have.
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


def test_nothing_is_missing_from_unchanged_seals(seals):
    assert check_sisters(seals, (), ()) == ([], [])


@pytest.mark.parametrize("mark", ["a", "s"])
def test_a_stream_that_was_taken_away_whole_is_named(seals, mark):
    names, folder = of_stream(seals, mark), folder_name(NODE, stream_of(mark))
    left = without(seals, names)
    breaks, behind = check_sisters(left, (), ())
    assert (len(breaks), behind) == (1, [])
    assert breaks[0].startswith(f"{folder}: the lake has 0 of its seals, and ")
    # What is in the spool may be on its way, and what retention has deleted is reported.
    breaks, behind = check_sisters(left, {(NODE, mark)}, ())
    assert (breaks, len(behind)) == ([], 1)
    assert check_sisters(left, (), {(NODE, mark)}) == ([], [])


@pytest.mark.parametrize("mark", ["a", "s"])
def test_an_end_that_was_cut_off_is_named(seals, mark):
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
def test_a_seal_that_names_no_seal_cannot_be_read(seals, text):
    seal = next(iter(seals.values()))
    with pytest.raises(ValueError, match=r"unpack|literal"):
        Seal.parse(replace(seal, sisters=f"{text},{text}" if text != "," else "s:1:0,x").to_json())
