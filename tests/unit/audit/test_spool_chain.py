"""`verify` names changed, removed and inserted segments of a spool, but not what retention and the writer do."""

import json
from dataclasses import replace

import cramjam
import pytest

from klamm_spark.spool import chain
from klamm_spark.spool.chain import read_folder
from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import (
    COMPRESSED_SUFFIXES,
    NO_CHAIN,
    OPEN_SUFFIX,
    SEAL_SUFFIX,
    Seal,
    SegmentName,
    chain_of,
    sealed_segments,
)
from tests.audit_samples import sample_events, write_sample_spool


@pytest.fixture
def paths(tmp_path):
    return write_sample_spool(tmp_path, sample_events(50), events_per_segment=10)


def breaks(paths):
    return read_folder(paths[0].parent).breaks


def seal_of(path):
    return path.with_suffix(SEAL_SUFFIX)


def write_seal(path, **changes):
    seal_of(path).write_bytes(replace(Seal.read(seal_of(path)), **changes).to_json())


def test_a_spool_as_it_was_written_has_no_break(paths):
    found = read_folder(paths[0].parent)
    assert (found.breaks, found.node, found.first) == ([], "node-1", Seal.read(seal_of(paths[0])))
    assert [seal.last_seq for seal in found.ends.values()] == [49]


@pytest.mark.parametrize(("suffix", "pack"), [(".zst", cramjam.zstd.compress), (".gz", cramjam.gzip.compress)])
def test_packed_segments_are_checked_by_their_lines(paths, suffix, pack):
    for path in paths:
        path.with_name(path.name + suffix).write_bytes(bytes(pack(path.read_bytes())))
        path.unlink()
    assert breaks(paths) == []
    broken = paths[1].with_name(paths[1].name + suffix)
    broken.write_bytes(b"not packed")
    assert breaks(paths)[0] == f"{broken} was changed: its SHA-256 differs from its seal"


def test_a_changed_segment_breaks_the_chain(paths):
    lines = paths[2].read_bytes().splitlines(keepends=True)
    paths[2].write_bytes(b"".join(lines[:-1]))
    assert breaks(paths) == [
        f"{paths[2]} was changed: its SHA-256 differs from its seal",
        f"{paths[2]} was changed: it has 9 events, its seal says 10",
    ]


def test_a_changed_segment_with_a_seal_that_fits_breaks_the_chain_after_it(paths):
    seal = Seal.read(seal_of(paths[2]))
    write_seal(paths[2], sha256="ab" * 32)
    assert breaks(paths)[1:] == [
        f"{paths[2].with_suffix('')}: its seal was changed: the chain does not match its SHA-256"
    ]
    write_seal(paths[2], chain=chain_of(seal.previous_chain, "ab" * 32, seal.lines_sha256))
    assert breaks(paths)[1:] == [
        f"{paths[3].with_suffix('')}: its chain does not continue {paths[2].stem}: one of them was replaced"
    ]


def test_a_removed_segment_is_named(paths):
    paths[2].unlink()
    assert breaks(paths) == [f"{paths[2].with_suffix('')} was removed: only its seal exists"]
    seal_of(paths[2]).unlink()
    assert breaks(paths) == [f"{paths[3].with_suffix('')}: 1 segments between it and {paths[1].stem} were removed"]


def test_an_inserted_segment_breaks_the_chain(paths):
    extra = paths[2].with_name(paths[2].name.replace("20.", "25."))
    extra.write_bytes(b"{}\n")
    assert breaks(paths) == [f"{extra} was inserted, or its seal was removed: no seal can be read"]
    extra.unlink()
    seal = Seal.read(seal_of(paths[2]))
    extra.write_bytes(paths[2].read_bytes())
    seal_of(extra).write_bytes(replace(seal, segment=extra.stem, first_seq=25).to_json())
    named = "\n".join(breaks(paths))
    assert f"{extra.with_suffix('')}: it or {paths[2].stem} was inserted: they have the indexes 2 and 2" in named


def test_a_seal_that_is_invalid_or_of_another_segment_is_reported(paths):
    seal_of(paths[1]).write_bytes(seal_of(paths[2]).read_bytes())
    assert f"{paths[1].with_suffix('')}: its seal is that of {paths[2].stem}" in breaks(paths)
    for text in ('{"index": 1}', "[]", "", json.dumps(json.loads(seal_of(paths[0]).read_bytes()) | {"index": "1"})):
        seal_of(paths[1]).write_text(text)
        assert breaks(paths)[0] == f"{paths[1]} was inserted, or its seal was removed: no seal can be read"


def test_a_chain_with_another_beginning_is_reported(paths):
    seal = Seal.read(seal_of(paths[0]))
    chain = chain_of("1" * 64, seal.sha256, seal.lines_sha256)
    write_seal(paths[0], previous_chain="1" * 64, chain=chain)
    assert breaks(paths)[0].endswith("its seal says that it is the first, but its chain continues another")
    assert NO_CHAIN not in breaks(paths)[0]


def test_retention_and_an_open_segment_do_not_break_the_chain(paths):
    # The oldest segment is deleted, but not its seal. Of the next one both are deleted.
    paths[1].unlink()
    seal_of(paths[0]).unlink()
    paths[0].unlink()
    # The newest segment is sealed, but does not have its final name yet.
    paths[4].rename(paths[4].with_suffix(".open"))
    found = read_folder(paths[0].parent)
    assert (found.breaks, found.first.segment) == ([], paths[2].stem)
    assert found.open == {found.first.boot: 40}


@pytest.mark.parametrize("compression", COMPRESSED_SUFFIXES)
def test_a_segment_that_is_sealed_while_the_folder_is_read_was_not_removed(paths, monkeypatch, compression):
    """A server first writes a seal, and then renames the segment."""
    last = paths[-1].with_name(paths[-1].name + COMPRESSED_SUFFIXES[compression])
    last.write_bytes(compress(paths[-1].read_bytes(), compression))
    if last != paths[-1]:
        paths[-1].unlink()
    monkeypatch.setattr(chain, "sealed_segments", lambda folder: sealed_segments(folder)[:-1])
    assert breaks(paths) == []


@pytest.mark.parametrize(("content", "started"), [(b"", False), (b'{"torn', False), (b'{"node": "n"}\n', True)])
def test_a_boot_begins_with_its_first_line(paths, content, started):
    """A boot's first line reports how the boot before it ended, and has the same place."""
    later = SegmentName("019b8ff8d001c0ffee00", 0)
    (paths[0].parent / f"{later.stem}{OPEN_SUFFIX}").write_bytes(content)
    assert (later.boot in read_folder(paths[0].parent).open) == started
