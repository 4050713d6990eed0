"""The ledger: the seals of all shipped segments in `LAKE/seals`, a folder of Parquet files that any engine can read.

A row has one segment's seal as the server wrote it, with the server's signature, and the digests of its lines in order.
`ship` adds it after the segment is in `events` and before it marks the segment as shipped. So retention deletes no
segment whose seal is not here. Several files may have the same seal. The last seal of a boot occurs twice: as it was
shipped, and with the mark that the server adds when it stops.

`ship` uses `Ledger` on its one thread. Only one `ship` writes to a lake, because it holds a lock.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm_spark.lake.anchors import Anchor, newest_of
from klamm_spark.lake.keys import remember_keys
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.segment import Segment
from klamm_spark.lake.text_files import read_text_files, write_text_file
from klamm_spark.spool.layout import (
    SEAL_SUFFIX,
    Seal,
    find_file,
    folder_of,
    node_folder_of,
    split_digests,
    stream_mark,
)
from klamm_spark.storage.filesystems import AnyPath, FileSystemError, path_of

_MERGED_BYTES: Final = 64 * 1024 * 1024
_NO_SEAL: Final = "it has no seal yet"


class SealRow(NamedTuple):
    """A row of the table. `lines` has the digests of the segment's lines, one after the other."""

    segment: str
    node: str
    boot: str
    seal: str
    lines: str


class SealFile(NamedTuple):
    """The content of a file of the table. If the file cannot be read or was changed, `problem` is a sentence about
    that.
    """

    path: AnyPath
    rows: Sequence[SealRow]
    problem: str


def read_seal_files(lake: Lake, *, lines_of: frozenset[str] | None = frozenset()) -> Iterator[SealFile]:
    """Yield the files of the table. `lines` are read only for the segments in `lines_of`, or for all if it is None."""
    columns = SealRow._fields if lines_of is None or lines_of else SealRow._fields[:-1]
    for file in read_text_files(lake.seals, columns):
        rows = [SealRow(*row[:4], *(row[4:] if lines_of is None or row[0] in lines_of else ("",))) for row in file.rows]
        yield SealFile(file.path, rows, file.problem)


def write_rows(lake: Lake, rows: Sequence[SealRow]) -> AnyPath:
    """Add rows to the table, all or none. Return the new file."""
    return write_text_file(lake.seals, SealRow._fields, rows)


class Shipped(NamedTuple):
    """A segment that is in the table of events, with the digests of its lines. An empty path: it has left the spool."""

    segment: Segment
    lines: str


class Ledger:
    """The shipped segments. `aside` has the segments that are not shipped, with the reasons."""

    def __init__(self, spool: AnyPath, lake: Lake, say: Callable[[str], None], anchor: Anchor | None = None) -> None:
        self._spool = spool
        self._lake = lake
        self._say = say
        self._anchor = anchor
        self.on_rows: Callable[[Sequence[SealRow]], None] | None = None
        """A function that gets the added rows, perhaps none."""
        self._running: dict[tuple[str, str], tuple[AnyPath | None, Seal]] = {}
        """The newest seal of each boot whose end is not known, with its file, if the spool still has it."""
        seals, breaks = read_seals(lake)
        for line in breaks:
            say(line)
        self.is_damaged = bool(breaks)
        self.known: set[str] = set()
        self.aside: dict[str, str] = {}
        self._damaged: set[str] = set()
        self._sealless: set[str] = set()
        """Segments without a readable seal in the spool."""
        self._keys = {"", *(seal.key_id for seal in seals.values())}
        """The ids of the keys that `remember_keys` has handled."""
        self._streams: dict[tuple[str, str], dict[int, Seal]] = defaultdict(dict)
        """The seals of each stream by their index: the lake's seals, and the seals of admitted segments."""
        for stem in sorted(seals):
            self._follow(None, seals[stem])
            self._streams[_stream(seals[stem])][seals[stem].index] = seals[stem]
        self._newest: dict[str, str] = {}
        """The newest known segment of each stream, by the name of the stream's folder."""
        self._know(seals.values())
        for node_boot, (_, seal) in self._running.items():
            self._running[node_boot] = _seal_file(spool, seal), seal

    def admit(self, path: AnyPath) -> Segment | None:
        """Return a segment that may be shipped, with its seal. The caller then calls `add` or `refuse`.

        If its seal cannot be read, or does not continue the chain of its stream, the segment is set aside, reported
        once, and the result is None.
        """
        stem = path.name.partition(".")[0]
        if stem in self._damaged:
            return None
        self._sealless.discard(stem)
        try:
            seal = Seal.read(path.with_name(stem + SEAL_SUFFIX))
            if seal.segment != stem:
                raise ValueError(f"its seal is that of {seal.segment}")
        except FileNotFoundError:
            self._sealless.add(stem)
            self._set_aside(path, stem, OSError(_NO_SEAL))
            return None
        except (OSError, ValueError) as error:
            # A FileSystemError is left out: a store that does not answer may answer later.
            if not isinstance(error, FileSystemError):
                self._sealless.add(stem)
            self._set_aside(path, stem, error)
            return None
        reason = self._misfit(seal)
        if reason:
            self._name_once(path, stem, reason)
            return None
        self._streams[_stream(seal)][seal.index] = seal
        return Segment(str(path), seal)

    def is_useless(self, stem: str) -> bool:
        """Return True if the spool's segment differs from its seal, or has no readable seal."""
        return stem in self._damaged or stem in self._sealless

    def admit_seals(self, seals: Iterable[Seal]) -> Iterator[Shipped]:
        """Yield segments of the table that the spool has lost, if their seals fit their streams."""
        for seal in sorted(seals, key=lambda seal: seal.segment):
            reason = self._misfit(seal)
            if reason:
                self._say(f"{seal.segment} is in the lake, and its seal is not: {reason}")
                continue
            self._streams[_stream(seal)][seal.index] = seal
            yield Shipped(Segment("", seal), "")

    def refuse(self, segment: Segment, error: OSError | ValueError) -> None:
        """Set a segment aside that differs from its seal. If the store failed, `ship` reads the segment again later."""
        self._streams[_stream(segment.seal)].pop(segment.seal.index, None)
        self._set_aside(path_of(segment.path), segment.seal.segment, error)

    def _set_aside(self, path: AnyPath, stem: str, error: OSError | ValueError) -> None:
        if not path.exists():
            self._say(f"{path} was deleted before it was shipped: klamm audit verify shows its events")
            return
        if isinstance(error, ValueError):
            self._damaged.add(stem)
        self._name_once(path, stem, str(error))

    def _name_once(self, path: AnyPath, stem: str, reason: str) -> None:
        if self.aside.get(stem) != reason:
            self.aside[stem] = reason
            self._say(f"{path} is set aside: {reason}")

    def has_newer(self, path: AnyPath) -> bool:
        """Return True if the ledger knows a newer segment of the same stream, or no segment at all."""
        folder = node_folder_of(path).name
        return not self.known or path.name < self._newest.get(folder, "")

    def newest(self) -> dict[str, str]:
        """Return the newest known segment of each stream, by the name of the stream's folder."""
        return dict(self._newest)

    def came_as_far_as(self, newest: Mapping[str, str]) -> bool:
        """Return True if the ledger knows these or newer segments. Otherwise a file of the ledger was lost."""
        return all(stem <= self._newest.get(folder, "") for folder, stem in newest.items())

    def add(self, segments: Sequence[Shipped]) -> None:
        """Add segments that are in the table of events, and last seals of boots that have ended meanwhile.

        Raises the errors of the anchor.
        """
        rows = []
        for (path, seal), lines in segments:
            self.aside.pop(seal.segment, None)
            # Look at the seal's file later: when the server stops, it marks the seal as the last one of the boot.
            self._follow(path_of(path).with_name(seal.segment + SEAL_SUFFIX) if path else None, seal)
            rows.append(_row_with(seal, lines))
        rows += self._ended()
        added = [each.segment.seal for each in segments]
        if any(seal.key_id not in self._keys for seal in added):
            # The server has a new key, or signs from now on.
            remember_keys(self._spool, self._lake, self._say)
            self._keys.update(seal.key_id for seal in added)
        # Anchors come first. If `ship` were killed after the rows, the next start would not anchor these seals.
        if self._anchor is not None:
            for anchored in newest_of(added):
                self._anchor(anchored)
        if rows:
            write_rows(self._lake, rows)
        if self.on_rows is not None:
            self.on_rows(rows)
        self._know(added)

    def _know(self, seals: Iterable[Seal]) -> None:
        for seal in seals:
            self.known.add(seal.segment)
            folder = folder_of(seal)
            self._newest[folder] = max(seal.segment, self._newest.get(folder, ""))

    def _misfit(self, seal: Seal) -> str:
        """Return the reason why a seal does not fit the known seals of its stream, or an empty text."""
        stream = self._streams[_stream(seal)]
        same, before, after = (stream.get(seal.index + step) for step in (0, -1, 1))
        if same is not None and same.segment != seal.segment:
            return (
                f"the lake has {same.segment} of {seal.node} in its place: two servers have this name, or one lost its "
                f"spool. Give the other another `node` in [audit]"
            )
        if (before is not None and before.chain != seal.previous_chain) or (
            after is not None and after.previous_chain != seal.chain
        ):
            return f"its seal does not continue the chain of {seal.node} that the lake has"
        return ""

    def _follow(self, path: AnyPath | None, seal: Seal) -> None:
        if seal.final:
            self._running.pop((seal.node, seal.boot), None)
        else:
            self._running[seal.node, seal.boot] = path, seal

    def _ended(self) -> Iterator[SealRow]:
        """Yield the seals that the server has marked as the last ones of their boots since they were added."""
        newest: dict[tuple[str, str], str] = {}
        for node, boot in self._running:
            stream = node, stream_mark(boot)
            newest[stream] = max(boot, newest.get(stream, ""))
        for (node, boot), (path, _) in list(self._running.items()):
            try:
                seal = Seal.read(path) if path is not None else None
            except (OSError, ValueError):
                seal = None
            if seal is not None and seal.final:
                yield _row_with(seal, "")
            if (seal is not None and seal.final) or boot < newest[node, stream_mark(boot)]:
                # A newer boot of the stream runs, so this boot has ended without a final seal.
                del self._running[node, boot]


def _seal_file(spool: AnyPath, seal: Seal) -> AnyPath | None:
    with contextlib.suppress(OSError):
        found: AnyPath | None = find_file(spool / folder_of(seal), seal.segment + SEAL_SUFFIX)
        return found
    return None


def _stream(seal: Seal) -> tuple[str, str]:
    return seal.node, stream_mark(seal.boot)


def _row_with(seal: Seal, lines: str) -> SealRow:
    return SealRow(seal.segment, seal.node, seal.boot, seal.to_json().decode("ascii"), lines)


def merge_seals(lake: Lake, say: Callable[[str], None]) -> None:
    """Merge small files of the table. Readers that see both the old and the new file see equal rows twice."""
    group: list[SealFile] = []
    size = merged = written = 0
    for file in read_seal_files(lake, lines_of=None):
        size_bytes = file.path.stat().st_size
        if file.problem or size_bytes >= _MERGED_BYTES:
            continue
        group.append(file)
        size += size_bytes
        if size >= _MERGED_BYTES:
            merged, written = merged + len(group), written + _merge(lake, group)
            group, size = [], 0
    if len(group) > 1:
        merged, written = merged + len(group), written + _merge(lake, group)
    if merged:
        say(f"{lake.seals}: {merged:,} files merged into {written:,}")


def _merge(lake: Lake, group: Sequence[SealFile]) -> int:
    kept = write_rows(lake, list(dict.fromkeys(row for file in group for row in file.rows)))
    for file in group:
        if file.path.name != kept.name:
            file.path.unlink(missing_ok=True)
    return 1


class KnownSeals(NamedTuple):
    """The seals of the lake by segment, and the faults of the table."""

    seals: dict[str, Seal]
    breaks: list[str]


def read_seals(lake: Lake) -> KnownSeals:
    """Return all seals, each once, and the faults of the table."""
    found: dict[str, list[Seal]] = defaultdict(list)
    breaks = []
    for file in read_seal_files(lake):
        if file.problem:
            breaks.append(f"{file.path} {file.problem}")
        for row in file.rows:
            try:
                seal = Seal.parse(row.seal)
            except ValueError as error:
                breaks.append(f"{file.path}: {row.segment}: its seal cannot be read: {error}")
                continue
            if seal.segment != row.segment:
                breaks.append(f"{file.path}: {row.segment}: its seal is that of {seal.segment}")
                continue
            if (seal.node, seal.boot) != (row.node, row.boot):
                breaks.append(f"{file.path}: {row.segment}: its row says another node or boot than its seal")
                continue
            found[row.segment].append(seal)
    seals = {}
    for segment, several in found.items():
        seals[segment] = max(several, key=lambda seal: seal.final)
        if len({seal.without_end() for seal in several}) > 1:
            breaks.append(f"{segment}: the lake has several seals of it that differ")
    return KnownSeals(seals, breaks)


def line_digests(lake: Lake, segments: Iterable[str]) -> dict[str, list[list[str]]]:
    """Return the digests of lines of some segments. A segment has several lists if the table has several rows of it."""
    found: dict[str, list[list[str]]] = defaultdict(list)
    for file in read_seal_files(lake, lines_of=frozenset(segments)):
        for row in file.rows:
            if row.lines:
                found[row.segment].append(split_digests(row.lines))
    return found
