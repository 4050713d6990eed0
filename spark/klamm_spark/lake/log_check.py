"""The part of `klamm audit verify` that looks at the log: is it the one that was kept, and has the lake what it says?

A checkpoint that was kept elsewhere pins all entries before it, also if the keys of server and lake are stolen. The
entries name each segment, its seal and its lines, so what the lake has not, or has otherwise, is named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.lake.anchors import Anchors
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.log_entries import NO_LINES, Entry, lines_root, times_of
from klamm_spark.lake.seal_log import CHECKPOINT, is_elsewhere, log_folder, seal_sha256
from klamm_spark.lake.seals import SealRow, read_seal_files, read_seals
from klamm_spark.settings.spark import SparkSettings
from klamm_spark.spool.layout import Seal, lines_sha256, split_digests, stream_mark
from klamm_spark.storage.filesystems import SMALL_BYTES, AnyPath, read_file
from klamm_spark.tlog.merkle import Tree, leaf_hash, root_of, tree_of
from klamm_spark.tlog.notes import Checkpoint, NoteKey
from klamm_spark.tlog.tiles import WIDTH, TileError, Tiles
from klamm_spark.tlog.timestamps import Authority, Stamp, read_stamps

_NAMED: Final = 20
_CLOCK_STEP: Final = timedelta(seconds=60)


class LogFindings(NamedTuple):
    """Sentences: `breaks` of what is not as it was written, `behind` of what is not in the log yet, and `notes`."""

    breaks: list[str]
    behind: list[str]
    notes: list[str]


class Pinned(NamedTuple):
    """A checkpoint that was kept elsewhere, and where."""

    place: str
    checkpoint: Checkpoint


def read_pinned(path: AnyPath, keys: Sequence[NoteKey]) -> Pinned:
    """Read a checkpoint that each of the keys has signed. Raises LakeError: it is of no use otherwise."""
    try:
        checkpoint = Checkpoint.parse(read_file(path, SMALL_BYTES, may_wait=True))
        times_of(checkpoint, keys)
    except (OSError, ValueError) as error:
        raise LakeError(f"--checkpoint {path}: {error}") from error
    if not keys:
        raise LakeError(f"--checkpoint {path} needs --vkey: the key that has signed it, of a witness if you can")
    return Pinned(str(path), checkpoint)


def read_anchored(anchors: Anchors) -> Iterator[Pinned]:
    """Yield the checkpoints among anchors. No signature is asked for: the place is what counts."""
    for number, line in enumerate(anchors.lines, start=1):
        try:
            yield Pinned(f"{anchors.path}:{number}", Checkpoint.parse(json.loads(line)["checkpoint"].encode()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # An anchor of a seal, or none: `compare_anchors` looks at those.
            continue


def check_log(
    lake: Lake, settings: SparkSettings, checkpoints: Sequence[AnyPath] = (), anchors: Anchors | None = None
) -> LogFindings:
    """Check the log against what was kept of it, and the ledger against the log. Raises LakeError."""
    keys = [NoteKey.parse(text) for text in settings.vkeys]
    pinned = [read_pinned(path, keys) for path in checkpoints]
    if anchors is not None:
        pinned += read_anchored(anchors)
    is_wanted = bool(pinned) or settings.timestamp_roots is not None
    if not is_wanted and (is_elsewhere(settings) or not log_folder(settings).exists()):
        return LogFindings([], [], [])
    folder = log_folder(settings)
    place = folder / CHECKPOINT
    if not pinned and not folder.exists():
        return LogFindings([], [f"log: there is none at {folder}, so it has no time stamp"], [])
    breaks, behind, notes = list[str](), list[str](), list[str]()
    # Before the checkpoint, because the log may grow meanwhile: what is kept is older than what it is kept of.
    stamps = list(read_stamps(folder, Authority(settings.timestamp_roots), breaks)) if settings.timestamp_roots else []
    try:
        current = Checkpoint.parse(read_file(place, SMALL_BYTES))
    except (OSError, ValueError) as error:
        return LogFindings([*breaks, f"{place} was taken away or changed: {error}"], [], [])
    entries = _entries(Tiles(folder, current.size), breaks)
    tree = tree_of([leaf_hash(data) for data in entries])
    pinned_here = [*(Pinned(str(stamp.path), stamp.checkpoint) for stamp in stamps), Pinned(str(place), current)]
    breaks += _against_kept([*pinned, *pinned_here], current, len(entries), tree)
    for key in keys:
        try:
            if current.time_of(key) is None:
                behind.append(f"log: {key.name} has not signed its newest checkpoint")
        except ValueError as error:
            breaks.append(f"{place} was changed: {error}")
    _check_ledger(lake, [_parse(data) for data in entries], breaks, behind)
    for kept, checkpoint in pinned:
        notes.append(f"log: {checkpoint.size:,} entries are pinned by {kept}")
    notes.append(f"log: {len(entries):,} entries, {current.origin}")
    if stamps:
        breaks += _out_of_order(stamps)
        notes += _stamped(lake, [_parse(data) for data in entries], stamps)
    elif settings.timestamp_roots:
        behind.append("log: it has no time stamp")
    return LogFindings(breaks, behind, notes)


def _entries(tiles: Tiles, breaks: list[str]) -> list[bytes]:
    """Return the entries, up to one that cannot be read, and name what the tiles say otherwise."""
    entries: list[bytes] = []
    try:
        entries.extend(tiles.entries())
    except TileError as error:
        breaks.append(f"the log was changed: {error}")
    level, hashes = 0, [leaf_hash(data) for data in entries]
    while hashes:
        above = []
        for at in range(0, len(hashes), WIDTH):
            tile = hashes[at : at + WIDTH]
            try:
                there = tiles.hashes(level, at // WIDTH)
            except TileError as error:
                breaks.append(f"the log was changed: {error}")
                there = tile
            for number, (one, other) in enumerate(zip(tile, there, strict=False), at):
                if one != other and len(breaks) < _NAMED:
                    of = f": {_parse(entries[number])}" if not level else ""
                    breaks.append(f"the log was changed: level {level} has another hash of number {number:,}{of}")
            if len(tile) == WIDTH:
                above.append(root_of(tile))
        level, hashes = level + 1, above
    return entries


def _against_kept(pinned: Sequence[Pinned], current: Checkpoint, size: int, tree: Tree) -> Iterator[str]:
    """Name the first checkpoint that this log of `size` entries does not extend, and those of more entries."""
    last = 0
    for place, checkpoint in sorted(pinned, key=lambda each: each.checkpoint.size):
        if checkpoint.origin != current.origin:
            yield f"{place} is of the log {checkpoint.origin}, and this one is {current.origin}"
        elif checkpoint.size > size:
            yield f"the log was rolled back: it has {size:,} entries, and {place} says {checkpoint.size:,}"
        elif tree.root(checkpoint.size) != checkpoint.root:
            yield (
                f"the log was forked or rewritten between its entries {last:,} and {checkpoint.size:,}: "
                f"it is not the one of {place}"
            )
            return
        else:
            last = checkpoint.size


def _out_of_order(stamps: Sequence[Stamp]) -> Iterator[str]:
    """Name stamps that say that the log became shorter: `ship` has the newest checkpoint stamped, and no other.

    An authority's clock may step back a little: times that differ by less than a minute say nothing.
    """
    largest: Stamp | None = None
    for stamp in sorted(stamps, key=lambda stamp: (stamp.time, stamp.checkpoint.size)):
        if largest is None or stamp.checkpoint.size >= largest.checkpoint.size:
            largest = stamp
        elif stamp.time - largest.time > _CLOCK_STEP:
            yield (
                f"the log was rolled back: it had {largest.checkpoint.size:,} entries at {largest.time.isoformat()} by "
                f"{largest.path}, and {stamp.checkpoint.size:,} at {stamp.time.isoformat()} by {stamp.path}"
            )


def _stamped(lake: Lake, entries: Sequence[Entry | None], stamps: Sequence[Stamp]) -> Iterator[str]:
    """Say since when the log is known, and how long after its seal a segment was stamped at the latest: who writes
    the past again gets stamps of today only."""
    size, newest = max((stamp.checkpoint.size, stamp.time) for stamp in stamps)
    yield f"log: {size:,} entries existed at {newest.isoformat()}, by {len(stamps):,} time stamps"
    seals, seen, late_s, done = read_seals(lake).seals, set[str](), 0.0, 0
    for stamp in sorted(stamps, key=lambda stamp: stamp.time):
        for entry in entries[done : stamp.checkpoint.size]:
            # The last seal of a boot comes again, when the boot has ended.
            if entry is not None and entry.segment in seals and entry.segment not in seen:
                seen.add(entry.segment)
                late_s = max(late_s, stamp.time.timestamp() - seals[entry.segment].sealed_time_us / 1e6)
        done = max(done, stamp.checkpoint.size)
    yield f"log: each of them was stamped within {timedelta(seconds=round(late_s))} of its seal"


def _parse(data: bytes) -> Entry | None:
    try:
        return Entry.parse(data)
    except ValueError:
        return None


def _check_ledger(lake: Lake, entries: Sequence[Entry | None], breaks: list[str], behind: list[str]) -> None:
    """Name each entry whose seal or lines the ledger does not have, and seals that came into it by another way."""
    logged = {entry.seal_sha256: (number, entry) for number, entry in enumerate(entries) if entry is not None}
    newest: dict[tuple[str, str], str] = {}
    for _, entry in logged.values():
        newest[_stream(entry)] = max(entry.segment, newest.get(_stream(entry), ""))
    seals, segments, with_lines, others = set[str](), set[str](), set[str](), dict[str, SealRow]()
    for row in (row for file in read_seal_files(lake, lines_of=None) for row in file.rows):
        sha256 = seal_sha256(row)
        segments.add(row.segment)
        if sha256 not in logged:
            others[sha256] = row._replace(lines="")
            continue
        seals.add(sha256)
        number, entry = logged[sha256]
        if row.lines:
            with_lines.add(row.segment)
            if not _has_lines(row, entry):
                breaks.append(f"{entry}: the digests of its lines are not those of entry {number:,} of the log")
    gone = list[str]()
    for sha256, (number, entry) in logged.items():
        if sha256 not in seals:
            which = "another" if entry.segment in segments else "no"
            gone.append(f"{entry} is entry {number:,} of the log, and the lake has {which} seal of it")
        elif entry.segment not in with_lines and entry.lines_root != NO_LINES:
            gone.append(f"{entry} is entry {number:,} of the log, and the lake has no digests of its lines")
    breaks += gone[:_NAMED] + ([f"and {len(gone) - _NAMED:,} more"] if len(gone) > _NAMED else [])
    # The last seal of a boot stands in the ledger twice.
    known = {entry.segment for _, entry in logged.values()}
    late = [row for row in others.values() if row.segment < newest.get(_stream(row), "") and row.segment not in known]
    breaks += [f"{row.segment} of {row.node} has a seal that is not in the log, and later ones are" for row in late]
    if len(others) > len(late):
        behind.append(f"log: {len(others) - len(late):,} seals are not in it yet")


def _stream(of: Entry | SealRow) -> tuple[str, str]:
    return of.node, stream_mark(of.segment.rpartition("-")[0])


def _has_lines(row: SealRow, entry: Entry) -> bool:
    """Tell if the digests of a row are those of its entry, and of its seal."""
    try:
        seal, root = Seal.parse(row.seal), lines_root(row.lines)
    except ValueError:
        return False
    return entry.lines_root in (NO_LINES, root) and lines_sha256(split_digests(row.lines)) == seal.lines_sha256
