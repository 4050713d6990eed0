"""Tests of the ledger, without Spark: which segments may be shipped, and which seals it gets."""

import json
from dataclasses import replace

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake.anchors import FileAnchor, compare_anchors, read_anchors
from klamm_spark.lake.appends import read_shipped
from klamm_spark.lake.keys import keys_of
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.seals import Ledger, read_seal_files, read_seals
from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal, SegmentName, stream_of
from klamm_spark.spool.signatures import SealSigner, write_key
from klamm_spark.storage.filesystems import FileSystemError, read_file
from tests.audit_samples import sample_events, write_sample_spool
from tests.unit.audit.test_spool import BadDisk

pytest.importorskip("pyarrow")


@pytest.fixture
def segments(tmp_path):
    return write_sample_spool(tmp_path / "spool", sample_events(40, seed=3), events_per_segment=10, final=True)


def add(ledger, segments):
    ledger.add([each for segment in segments if (each := read_shipped(ledger, segment)) is not None])


def rows_of(tmp_path, lake_name, segments):
    """Return all rows of a new lake, and the output."""
    said = []
    lake = Lake(tmp_path / lake_name)
    add(Ledger(tmp_path / "spool", lake, said.append), segments)
    return [row for file in read_seal_files(lake, lines_of=None) for row in file.rows], said


def test_a_segment_without_a_seal_is_named_once_and_shipped_when_the_seal_exists(tmp_path, segments):
    seal = segments[1].with_suffix(SEAL_SUFFIX)
    away = seal.rename(seal.with_name("away"))
    said = []
    ledger = Ledger(tmp_path / "spool", Lake(tmp_path / "lake"), said.append)
    assert [read_shipped(ledger, path) is None for path in (*segments, segments[1])] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert said == [f"{segments[1]} is set aside: it has no seal yet"]
    away.rename(seal)
    add(ledger, [segments[1]])
    assert (ledger.known, ledger.aside) == ({segments[1].stem}, {})


def test_a_segment_that_its_store_did_not_return_is_read_again(tmp_path, segments, monkeypatch):
    failures = [FileSystemError("the store did not answer")]

    def read(path):
        if failures:
            raise failures.pop()
        return read_file(path)

    monkeypatch.setattr("klamm_spark.lake.segment.read_file", read)
    said = []
    ledger = Ledger(tmp_path / "spool", Lake(tmp_path / "lake"), said.append)
    assert read_shipped(ledger, segments[1]) is None
    assert said == [f"{segments[1]} is set aside: the store did not answer"]
    add(ledger, [segments[1]])
    assert (ledger.known, ledger.aside) == ({segments[1].stem}, {})


def test_a_compressed_segment_with_a_flipped_byte_is_the_only_one_set_aside(tmp_path, segments):
    for path in segments:
        path.with_name(f"{path.name}.zst").write_bytes(compress(path.read_bytes(), "zstd"))
        path.unlink()
    packed = [path.with_name(f"{path.name}.zst") for path in segments]
    whole = packed[1].read_bytes()
    for at in range(0, len(whole), 37):
        packed[1].write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        found, said = rows_of(tmp_path, f"lake-{at}", packed)
        assert [row.segment for row in found] == [path.stem for path in segments if path != segments[1]], at
        assert len(said) == 1
        assert said[0].startswith(f"{packed[1]} is set aside: "), at


def test_a_segment_that_retention_has_deleted_is_named(tmp_path, segments):
    segments[1].unlink()
    found, said = rows_of(tmp_path, "lake", segments)
    gone = f"{segments[1]} was deleted before it was shipped: klamm audit verify shows its events"
    assert (len(found), said) == (3, [gone])


def test_two_servers_with_the_same_name_cannot_ship_to_one_lake(tmp_path, segments):
    """The order and the folders of the segments do not matter. A segment of another stream is accepted."""
    other = write_sample_spool(
        tmp_path / "other", sample_events(30, boot="019b8ff8d000deadbeef"), events_per_segment=10
    )
    security = write_sample_spool(
        tmp_path / "other", sample_events(10, boot="019b8ff8d000deadbeefs", node="node-2"), events_per_segment=10
    )
    found, said = rows_of(tmp_path, "lake", [*segments[:2], *other, *security])
    assert [row.segment for row in found] == [path.stem for path in (*segments[:2], *security)]
    assert len(said) == 3
    reason = f"the lake has {segments[0].stem} of node-1 in its place: two servers have this name"
    assert said[0].startswith(f"{other[0]} is set aside: {reason}")
    # The third segment has its own place, and continues another chain.
    assert said[2] == f"{other[2]} is set aside: its seal does not continue the chain of node-1 that the lake has"
    # The next start knows this from the lake.
    ledger = Ledger(tmp_path / "spool", Lake(tmp_path / "lake"), said.append)
    assert [read_shipped(ledger, path) is None for path in (*other, *segments[2:])] == [True, True, True, False, False]


CHANGES = {
    "a line is another": lambda lines: [lines[0].replace(b"node-1", b"node-2"), *lines[1:]],
    "a line is there twice": lambda lines: [lines[0], *lines],
    "a line is missing": lambda lines: lines[1:],
    "a line has taken the place of another": lambda lines: [lines[1], *lines[1:]],
    "there is part of a line more": lambda lines: [*lines, b"{"],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_segment_that_differs_from_its_seal_is_the_only_one_set_aside(tmp_path, segments, change):
    assert rows_of(tmp_path, "before", segments)[1] == []
    segments[1].write_bytes(b"".join(change(segments[1].read_bytes().splitlines(keepends=True))))
    found, said = rows_of(tmp_path, "lake", segments)
    assert [row.segment for row in found] == [path.stem for path in segments if path != segments[1]]
    assert said == [f"{segments[1]} is set aside: it differs from its seal"]


def test_a_seal_that_becomes_final_after_it_was_read_is_added_again(tmp_path):
    segments = write_sample_spool(tmp_path / "spool", sample_events(30, seed=3), events_per_segment=10)
    lake = Lake(tmp_path / "lake")
    ledger = Ledger(tmp_path / "spool", lake, print)
    read = [read_shipped(ledger, segment) for segment in segments]
    stem = segments[-1].name.partition(".")[0]
    path = segments[-1].with_name(stem + SEAL_SUFFIX)
    path.write_bytes(path.read_bytes().replace(b'"final":false', b'"final":true'))
    ledger.add(read)
    assert read_seals(lake).seals[stem].final


def test_ship_starts_with_a_seal_of_a_stream_of_a_later_klamm(tmp_path, segments):
    (tmp_path / "spool" / "node-1").rename(tmp_path / "spool" / "node-1~x")
    folder = tmp_path / "spool" / "node-1~x" / segments[0].parent.name
    path = min(folder.glob("*.seal"))
    seal = Seal.read(path)
    name = SegmentName(f"{seal.boot}x", 0).stem
    (folder / f"{name}{SEAL_SUFFIX}").write_bytes(replace(seal, boot=f"{seal.boot}x", segment=name).to_json())
    segment = (folder / path.stem).with_suffix(".jsonl").rename(folder / f"{name}.jsonl")
    lake = Lake(tmp_path / "lake")
    for _ in range(2):
        add(Ledger(tmp_path / "spool", lake, print), [segment])
    assert list(read_seals(lake).seals) == [name]
    assert [stream_of(mark) for mark in ("", "s", "x")] == ["requests", "security", "x"]


# ---- anchors


def test_seals_that_could_not_be_anchored_are_anchored_after_the_next_start(tmp_path, segments):
    lake, anchored = Lake(tmp_path / "lake"), []

    def fails(seal):
        raise LakeError("no")

    with pytest.raises(LakeError):
        add(Ledger(tmp_path / "spool", lake, print, fails), segments)
    add(Ledger(tmp_path / "spool", lake, print, anchored.append), segments)
    assert [one["segment"] for one in anchored] == [segments[-1].name.partition(".")[0]]
    assert len(read_seals(lake).seals) == len(segments)


class ShortWrites(BadDisk):
    """File operations that write a few bytes at a time."""

    def write(self, descriptor, data):
        return super().write(descriptor, data[:7])


def anchors_in(path):
    return [json.loads(line)["index"] for line in path.read_text().splitlines()]


def test_an_anchor_is_written_whole_or_not_at_all(tmp_path):
    path, disk = tmp_path / "anchors", ShortWrites()
    FileAnchor(path, disk)({"index": 0})
    disk.room = 5
    with pytest.raises(LakeError):
        FileAnchor(path, disk)({"index": 1})
    disk.room = 1 << 20
    FileAnchor(path, disk)({"index": 1})
    assert anchors_in(path) == [0, 1]


def test_an_anchor_that_a_crash_has_torn_does_not_affect_others(tmp_path):
    path = tmp_path / "anchors"
    path.write_text('{"index":0}\n{"ind')
    FileAnchor(path)({"index": 1})
    assert path.read_text().splitlines() == ['{"index":0}', '{"ind', '{"index":1}']


def test_lines_that_are_no_anchors_are_named(tmp_path, segments):
    lines = [
        b"null",
        b"7",
        b"[]",
        b'{"segment":[],"chain":""}',
        b'{"segment":{}}',
        b"\xff",
        b"[" * 100_000,
        b'"x"',
        b"",
    ]
    (tmp_path / "anchors").write_bytes(b"\n".join(lines))
    found = list(compare_anchors(read_anchors(tmp_path / "anchors"), {}))
    assert found == [f"{tmp_path / 'anchors'}:{number} is not an anchor" for number in range(1, len(lines))]


# ---- keys


def test_a_key_that_appears_while_ship_runs_is_kept(tmp_path, segments):
    lake, said = Lake(tmp_path / "lake"), []
    ledger = Ledger(tmp_path / "spool", lake, said.append)
    add(ledger, segments[:2])
    write_key(tmp_path / "key.pem")
    signer, folder = SealSigner(tmp_path / "key.pem"), tmp_path / "spool" / "node-1"
    (folder / f"{signer.key_id}.pub").write_bytes(signer.public_pem)
    for segment in segments[2:]:
        path = segment.with_name(segment.name.partition(".")[0] + SEAL_SUFFIX)
        path.write_bytes(signer.signed(Seal.read(path)).to_json())
    add(ledger, segments[2:])
    keys = keys_of(lake, folder.name)
    assert [keys.problem(seal) for seal in read_seals(lake).seals.values() if seal.signature] == [None, None]
    assert len(said) == 1
    assert signer.key_id in said[0]
