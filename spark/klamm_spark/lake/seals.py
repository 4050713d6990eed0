"""The seals of all shipped segments in the lake: `LAKE/seals`, a folder of Parquet files that any engine reads.

A row is one segment: its seal as the server wrote it, with the server's signature, and the digest of each of its lines
in their order. `ship` adds it when the segment is in `events`, and before the segment is marked as shipped: so
retention deletes no segment without it. The same seal may stand in several files, and the last one of a boot twice: as
it was shipped, and as the server has marked it when it stopped in order.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm_spark.lake.anchors import Anchor, newest_of
from klamm_spark.lake.keys import remember_keys
from klamm_spark.lake.text_files import read_text_files, write_text_file
from klamm_spark.spool.compression import LineReader
from klamm_spark.spool.layout import (
    DIGEST_DIGITS,
    SEAL_SUFFIX,
    Seal,
    digests_of,
    find_file,
    folder_name,
    lines_sha256,
    parse_name,
    stream_mark,
    stream_of,
)
from klamm_spark.storage.filesystems import AnyPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from klamm_spark.lake.layout import Lake

_MERGED_BYTES: Final = 64 * 1024 * 1024


class SealRow(NamedTuple):
    """A row of the table. `lines` are the digests of the segment's lines, one after the other."""

    segment: str
    node: str
    boot: str
    seal: str
    lines: str


class SealFile(NamedTuple):
    """What a file of the table has; `problem` says why it cannot be read, or that it was changed."""

    path: AnyPath
    rows: Sequence[SealRow]
    problem: str


def read_seal_files(lake: Lake, *, lines_of: frozenset[str] | None = frozenset()) -> Iterator[SealFile]:
    """The files of the table. `lines` are read of these segments only, or of all if it is None."""
    columns = SealRow._fields if lines_of is None or lines_of else SealRow._fields[:-1]
    for file in read_text_files(lake.seals, columns):
        rows = [SealRow(*row[:4], *(row[4:] if lines_of is None or row[0] in lines_of else ("",))) for row in file.rows]
        yield SealFile(file.path, rows, file.problem)


def write_rows(lake: Lake, rows: Sequence[SealRow]) -> AnyPath:
    """Add rows to the table, all or none; the file."""
    return write_text_file(lake.seals, SealRow._fields, rows)


class LakeSeals:
    """Adds the seals of shipped segments. For one thread."""

    def __init__(self, spool: AnyPath, lake: Lake, say: Callable[[str], None], anchor: Anchor | None = None) -> None:
        self._spool = spool
        self._lake = lake
        self._say = say
        self._anchor = anchor
        self._lines = LineReader()
        self._running: dict[tuple[str, str], tuple[AnyPath | None, Seal]] = {}
        """Of each boot whose end is not known, its newest seal and the file of that, if it is in the spool."""
        seals = read_seals(lake).seals
        self._known = set(seals)
        self._keys = {"", *(seal.key_id for seal in seals.values())}
        """Of which it is known whether the lake has them."""
        self._read_ahead: dict[str, tuple[AnyPath, Seal, str] | None] = {}
        for stem in sorted(seals):
            self._follow(None, seals[stem])
        for node_boot, (_, seal) in self._running.items():
            self._running[node_boot] = _seal_file(spool, seal), seal

    def read_ahead(self, segment: AnyPath) -> None:
        """Keep the seal and the digests of a segment that is being shipped, for `add`."""
        name = parse_name(segment.name)
        if name is not None and name.stem not in self._known and name.stem not in self._read_ahead:
            self._read_ahead[name.stem] = self._read(segment, name.stem)

    def add(self, segments: Iterable[AnyPath]) -> None:
        """Add the seals of segments that the lake has, and of the last ones of boots that have ended since.

        A segment without a seal, or one that differs from it, is named: it is in `events` as it is. Raises what the
        anchor raises.
        """
        rows, added = [], []
        for path in sorted(segments, key=lambda path: path.name):
            name = parse_name(path.name)
            if name is not None and name.stem not in self._known:
                self._known.add(name.stem)
                sealed = self._taken(path, name.stem)
                if sealed is not None:
                    seal_path, seal, lines = sealed
                    self._follow(seal_path, seal)
                    rows.append(_row_with(seal, lines))
                    added.append(seal)
        rows += self._ended()
        if any(seal.key_id not in self._keys for seal in added):
            # A server signs now, or has another key.
            remember_keys(self._spool, self._lake, self._say)
            self._keys.update(seal.key_id for seal in added)
        # Anchors first: of what the lake has already, the next start would anchor nothing.
        if self._anchor is not None:
            for anchored in newest_of(added):
                self._anchor(anchored)
        if rows:
            write_rows(self._lake, rows)

    def _taken(self, path: AnyPath, stem: str) -> tuple[AnyPath, Seal, str] | None:
        return self._read_ahead.pop(stem) if stem in self._read_ahead else self._read(path, stem)

    def _read(self, path: AnyPath, stem: str) -> tuple[AnyPath, Seal, str] | None:
        """The seal of a segment with its file, and the digests of the lines."""
        seal_path = path.with_name(stem + SEAL_SUFFIX)
        try:
            seal = Seal.read(seal_path)
            pieces = self._lines.pieces(path.read_bytes(), path.suffix)
        except (OSError, ValueError) as error:
            self._say(f"{path} gets no seal in the lake: {error}")
            return None
        # The lake needs the digests of the lines: the whole is hashed only where a seal of an earlier klamm has none.
        whole = None if seal.lines_sha256 else hashlib.sha256()
        size_bytes, digests = 0, list[str]()
        for piece in pieces:
            size_bytes += len(piece)
            digests += digests_of(piece)
            if whole is not None:
                whole.update(piece)
        found = size_bytes, len(digests), whole.hexdigest() if whole is not None else lines_sha256(digests)
        if found != (seal.size_bytes, seal.events, seal.lines_sha256 or seal.sha256):
            self._say(f"{path} differs from its seal, and was shipped as it is: klamm audit verify shows its events")
        return seal_path, seal, "".join(digests)

    def _follow(self, path: AnyPath | None, seal: Seal) -> None:
        if seal.final:
            self._running.pop((seal.node, seal.boot), None)
        else:
            self._running[seal.node, seal.boot] = path, seal

    def _ended(self) -> Iterator[SealRow]:
        """Seals that the server has marked as the last ones of their boots since they were added."""
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
                # A boot that is over without a final seal gets none.
                del self._running[node, boot]


def _seal_file(spool: AnyPath, seal: Seal) -> AnyPath | None:
    stream = stream_of(stream_mark(seal.boot))
    with contextlib.suppress(OSError):
        found: AnyPath | None = find_file(spool / folder_name(seal.node, stream), seal.segment + SEAL_SUFFIX)
        return found
    return None


def _row_with(seal: Seal, lines: str) -> SealRow:
    return SealRow(seal.segment, seal.node, seal.boot, seal.to_json().decode("ascii"), lines)


def merge_seals(lake: Lake, say: Callable[[str], None]) -> None:
    """Merge small files of the table. A reader that has both sees rows twice, which say the same."""
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
    """The seals of the lake by their segments, and what is wrong with the table."""

    seals: dict[str, Seal]
    breaks: list[str]


def read_seals(lake: Lake) -> KnownSeals:
    """All seals, each once."""
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
            if (seal.segment, seal.node, seal.boot) != (row.segment, row.node, row.boot):
                breaks.append(f"{file.path}: {row.segment}: its seal is that of {seal.segment}")
                continue
            found[row.segment].append(seal)
    seals = {}
    for segment, several in found.items():
        seals[segment] = max(several, key=lambda seal: seal.final)
        if len({_without_the_end(seal) for seal in several}) > 1:
            breaks.append(f"{segment}: the lake has several seals of it that differ")
    return KnownSeals(seals, breaks)


def _without_the_end(seal: Seal) -> Seal:
    return replace(seal, final=False, signature="", key_id="")


def line_digests(lake: Lake, segments: Iterable[str]) -> dict[str, list[list[str]]]:
    """The digests of the lines of these segments, in order: of each as many lists as the table has."""
    found: dict[str, list[list[str]]] = defaultdict(list)
    for file in read_seal_files(lake, lines_of=frozenset(segments)):
        for row in file.rows:
            if row.lines:
                text = row.lines
                found[row.segment].append([text[at : at + DIGEST_DIGITS] for at in range(0, len(text), DIGEST_DIGITS)])
    return found
