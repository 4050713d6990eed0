"""The check of the log in `klamm audit verify`: is it the same log as before, and does the lake have its entries?

A checkpoint that was kept elsewhere proves all entries before it, even if the keys of the server and of the lake are
stolen. An entry names a segment, its seal and its lines. So `verify` can name missing and changed segments of the lake.
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
    """The results, as sentences.

    `breaks` are about changes, `behind` about missing parts that may still come, and `notes` are facts.
    """

    breaks: list[str]
    behind: list[str]
    notes: list[str]


class Pinned(NamedTuple):
    """A checkpoint that was kept elsewhere, with its place."""

    place: str
    checkpoint: Checkpoint


def read_pinned(path: AnyPath, keys: Sequence[NoteKey]) -> Pinned:
    """Read a checkpoint. Raises LakeError if one of the keys has not signed it, or if there is no key."""
    try:
        checkpoint = Checkpoint.parse(read_file(path, SMALL_BYTES, may_wait=True))
        times_of(checkpoint, keys)
    except (OSError, ValueError) as error:
        raise LakeError(f"--checkpoint {path}: {error}") from error
    if not keys:
        raise LakeError(f"--checkpoint {path} needs --vkey: the key that has signed it, of a witness if you can")
    return Pinned(str(path), checkpoint)


def read_anchored(anchors: Anchors) -> Iterator[Pinned]:
    """Yield the checkpoints among the anchors. They need no signature, because their place is safe."""
    for number, line in enumerate(anchors.lines, start=1):
        try:
            yield Pinned(f"{anchors.path}:{number}", Checkpoint.parse(json.loads(line)["checkpoint"].encode()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # A line without a checkpoint. `compare_anchors` reads such lines.
            continue


def check_log(
    lake: Lake, settings: SparkSettings, checkpoints: Sequence[AnyPath] = (), anchors: Anchors | None = None
) -> LogFindings:
    """Check the log against kept checkpoints, and the ledger against the log. Raises LakeError."""
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
    # Read the stamps before the checkpoint: `ship` may extend the log meanwhile, and a stamp must not be newer.
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
    """Return the entries up to the first that cannot be read. Add a sentence to `breaks` for each tile that differs."""
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
    """Name the first checkpoint that this log of `size` entries does not extend, and checkpoints with more entries."""
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
    """Name stamps that show that the log became shorter. `ship` always has the newest checkpoint stamped.

    An authority's clock may step back a little. So differences of less than a minute do not count.
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
    """Yield the time at which the log existed, and the longest time between a seal and the stamp of its entry.

    An attacker who writes the past again only gets stamps with the present time, and so long times.
    """
    size, newest = max((stamp.checkpoint.size, stamp.time) for stamp in stamps)
    yield f"log: {size:,} entries existed at {newest.isoformat()}, by {len(stamps):,} time stamps"
    seals, seen, late_s, done = read_seals(lake).seals, set[str](), 0.0, 0
    for stamp in sorted(stamps, key=lambda stamp: stamp.time):
        for entry in entries[done : stamp.checkpoint.size]:
            # At the end of a boot, its last segment gets a second entry. Only the first one counts.
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
    """Name each entry whose seal or lines the ledger lacks, and each seal that the ledger has but the log should have
    had.
    """
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
    # When a boot has ended, the ledger has its last seal twice.
    known = {entry.segment for _, entry in logged.values()}
    late = [row for row in others.values() if row.segment < newest.get(_stream(row), "") and row.segment not in known]
    breaks += [f"{row.segment} of {row.node} has a seal that is not in the log, and later ones are" for row in late]
    if len(others) > len(late):
        behind.append(f"log: {len(others) - len(late):,} seals are not in it yet")


def _stream(of: Entry | SealRow) -> tuple[str, str]:
    return of.node, stream_mark(of.segment.rpartition("-")[0])


def _has_lines(row: SealRow, entry: Entry) -> bool:
    """Return True if the digests in a row fit its entry and its seal."""
    try:
        seal, root = Seal.parse(row.seal), lines_root(row.lines)
    except ValueError:
        return False
    return entry.lines_root in (NO_LINES, root) and lines_sha256(split_digests(row.lines)) == seal.lines_sha256
