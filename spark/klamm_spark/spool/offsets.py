"""Offsets in a spool, exact to the line, for readers that follow it while it is written. Without Spark.

An offset is, for each node, a segment and a number of its uncompressed bytes, always at the start of a line. It stays
valid when the segment is sealed or compressed: that changes the segment's name, not its lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from klamm_spark.spool.compression import decompress, is_compressed
from klamm_spark.spool.layout import (
    COMPRESSED_SUFFIXES,
    OPEN_SUFFIX,
    SEALED_SUFFIX,
    find_file,
    node_folders,
    parse_name,
    segment_files,
)
from klamm_spark.spool.reader import read_seal

_LOOK_BACK: Final = 64 * 1024
_SUFFIXES: Final = (*(SEALED_SUFFIX + suffix for suffix in COMPRESSED_SUFFIXES.values()), OPEN_SUFFIX)

Offset = dict[str, dict[str, "str | int"]]
"""`{node: {"segment": stem, "bytes": position}}`, as stored in a checkpoint."""


class DataLossError(Exception):
    """Segments were deleted before they were read."""


class Piece(NamedTuple):
    """Whole lines of one segment; `start` and `end` are uncompressed bytes."""

    node: str
    segment: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SpoolFollower:
    """Finds new lines in a spool. With `live`, also the whole lines of segments that are being written."""

    spool: Path
    live: bool

    def latest(self, start: Offset, max_bytes: int | None = None) -> Offset:
        """The end of what can be read from `start`: everything, or about `max_bytes`.

        Each node gets an equal share of the limit, which the last line of a node may exceed.
        """
        nodes = [folder.name for folder in node_folders(self.spool)] if self.spool.is_dir() else []
        end = dict(start)
        share = None if max_bytes is None else max(1, max_bytes // max(1, len(nodes)))
        for node in nodes:
            left = share
            for segment, size in self._after(node, start.get(node)):
                if left == 0:
                    break
                at = _first_byte(start, node, segment)
                if left is not None and size - at > left:
                    end[node] = {"segment": segment, "bytes": self._line_end(node, segment, at + left, size)}
                    break
                end[node] = {"segment": segment, "bytes": size}
                if left is not None:
                    left -= size - at
        return end

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        """The lines between two offsets, one piece per segment. Raises DataLossError if some were deleted."""
        found = []
        for node, last in end.items():
            first = start.get(node)
            if first == last:
                continue
            names = [segment for segment, _ in self.segments(node)]
            if first is not None and first["segment"] not in names:
                raise DataLossError(f"segment {first['segment']} of {node} was deleted before it was read to its end")
            for segment in names:
                if (first is not None and segment < str(first["segment"])) or segment > str(last["segment"]):
                    continue
                at = _first_byte(start, node, segment)
                to = int(last["bytes"]) if segment == last["segment"] else self._size(node, segment)
                if to > at:
                    found.append(Piece(node, segment, at, to))
        return found

    def holds(self, node: str, position: dict[str, str | int]) -> bool:
        """Return True if the segment of a node's offset still exists."""
        return any(segment == position["segment"] for segment, _ in self.segments(node))

    def read(self, piece: Piece) -> bytes:
        """The lines of a piece. Raises DataLossError if its segment is gone."""
        path = self._path(piece.node, piece.segment)
        if is_compressed(path.suffix):
            return _decompressed(path)[piece.start : piece.end]
        with path.open("rb") as file:
            file.seek(piece.start)
            return file.read(piece.end - piece.start)

    def _after(self, node: str, position: dict[str, str | int] | None) -> Iterator[tuple[str, int]]:
        for segment, path in self.segments(node):
            if position is None or segment >= str(position["segment"]):
                yield segment, self._size_of(node, path)

    def segments(self, node: str) -> list[tuple[str, Path]]:
        """Stems and files, oldest first. While a segment is sealed, both of its names may exist."""
        found: dict[str, Path] = {}
        for path in segment_files(self.spool / node):
            name = parse_name(path.name)
            if name is None or not path.name.endswith(_SUFFIXES):
                continue
            if path.suffix != OPEN_SUFFIX or (self.live and name.stem not in found):
                found[name.stem] = path
        return sorted(found.items())

    def _path(self, node: str, segment: str) -> Path:
        path = find_file(self.spool / node, *(f"{segment}{suffix}" for suffix in _SUFFIXES))
        if path is None:
            raise DataLossError(f"segment {segment} of {node} is gone")
        return path

    def _size(self, node: str, segment: str) -> int:
        return self._size_of(node, self._path(node, segment))

    def _size_of(self, node: str, path: Path) -> int:
        """Uncompressed bytes up to the end of the last whole line."""
        try:
            if is_compressed(path.suffix):
                seal = read_seal(path)
                return seal.size_bytes if seal is not None else len(_decompressed(path))
            size = path.stat().st_size
            return _last_line_end(path, size) if path.suffix == OPEN_SUFFIX else size
        except FileNotFoundError:
            # The segment was sealed or deleted after it was listed.
            name = parse_name(path.name)
            assert name is not None
            return self._size(node, name.stem)

    def _line_end(self, node: str, segment: str, at_least: int, size: int) -> int:
        path = self._path(node, segment)
        if is_compressed(path.suffix):
            found = _decompressed(path).find(b"\n", at_least - 1)
            return size if found < 0 else found + 1
        with path.open("rb") as file:
            file.seek(at_least - 1)
            file.readline()
            return min(file.tell(), size)


def earlier(one: Offset, other: Offset) -> Offset:
    """The earlier position of each node that both offsets have."""
    return {
        node: min(one[node], other[node], key=lambda position: (str(position["segment"]), int(position["bytes"])))
        for node in one.keys() & other.keys()
    }


def _first_byte(start: Offset, node: str, segment: str) -> int:
    position = start.get(node)
    return int(position["bytes"]) if position is not None and position["segment"] == segment else 0


def _last_line_end(path: Path, size: int) -> int:
    with path.open("rb") as file:
        end = size
        while end > 0:
            begin = max(0, end - _LOOK_BACK)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return 0


def _decompressed(path: Path) -> bytes:
    try:
        return decompress(path.read_bytes(), path.suffix)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
