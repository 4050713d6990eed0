"""C2SP's tiles: the hashes and the entries of a log as files that never change, in a folder that any web server serves.

```
LOG/
    checkpoint                   the newest one, with its signatures
    tile/0/x001/x234/067         hashes of 256 leaves; /tile/1/… those of 256 full tiles below, and so on
    tile/0/000.p/12              while a tile has fewer hashes, here 12
    tile/entries/000             the entries that are hashed, each after its length in two bytes
```
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from klamm_spark.storage.filesystems import create_durably, read_file
from klamm_spark.tlog.merkle import Tree, leaf_hash, root_of

WIDTH: Final = 256
ENTRIES: Final = "entries"
_HASH_BYTES: Final = 32
_LEVEL_BITS: Final = 8
_LENGTH_BYTES: Final = 2
_TILES_KEPT: Final = 1024


class TileError(ValueError):
    """A file of the log is missing, or its content does not fit its name."""


def tile_name(level: int | str, index: int, width: int) -> str:
    """Return the name of a tile's file below the log."""
    thousands = f"{index % 1000:03}"
    while index := index // 1000:
        thousands = f"x{index % 1000:03}/{thousands}"
    return f"tile/{level}/{thousands}" + (f".p/{width}" if width < WIDTH else "")


class Tiles:
    """The files of a log with `size` entries. Each method raises TileError."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self.size = size
        self.tree = Tree(self._full)
        self.hashes = lru_cache(_TILES_KEPT)(self._hashes)

    def entries(self, first: int = 0) -> Iterator[bytes]:
        """Yield the entries from number `first` on."""
        for index in range(first // WIDTH, -(-self.size // WIDTH)):
            for at, entry in enumerate(self.bundle(index), index * WIDTH):
                if at >= first:
                    yield entry

    def bundle(self, index: int) -> list[bytes]:
        """Return the up to 256 entries of one file."""
        width = min(WIDTH, self.size - index * WIDTH)
        name, data = self._read(ENTRIES, index, width)
        found, at = list[bytes](), 0
        while at < len(data) and len(found) < width:
            end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
            found.append(data[at + _LENGTH_BYTES : end])
            at = end
        # The file may be the full one that has replaced a partial one. Then it has more entries.
        if len(found) < width or at > len(data) or (at < len(data) and name == tile_name(ENTRIES, index, width)):
            raise TileError(f"{self._folder / name} does not have {width} entries")
        return found

    def _hashes(self, level: int, index: int) -> list[bytes]:
        width = min(WIDTH, (self.size >> _LEVEL_BITS * level) - index * WIDTH)
        name, data = self._read(level, index, width)
        if len(data) < width * _HASH_BYTES or len(data) % _HASH_BYTES:
            raise TileError(f"{self._folder / name} does not have {width} hashes")
        return [data[at : at + _HASH_BYTES] for at in range(0, width * _HASH_BYTES, _HASH_BYTES)]

    def _full(self, level: int, index: int) -> bytes:
        tile_level, above = divmod(level, _LEVEL_BITS)
        first = index << above
        return root_of(self.hashes(tile_level, first // WIDTH)[first % WIDTH :][: 1 << above])

    def _read(self, level: int | str, index: int, width: int) -> tuple[str, bytes]:
        """Return a tile, or the full tile that has replaced it."""
        for name in dict.fromkeys((tile_name(level, index, width), tile_name(level, index, WIDTH))):
            try:
                return name, read_file(self._folder / name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise TileError(f"{self._folder / name} cannot be read: {error.strerror or error}") from error
        raise TileError(f"{self._folder / tile_name(level, index, width)} is missing")


def append_entries(folder: Path, size: int, entries: Sequence[bytes]) -> int:
    """Add entries to a log that has `size` entries, and return its new size. Raises OSError, TileError.

    The checkpoint does not change yet.
    """
    old = Tiles(folder, size)
    first = size - size % WIDTH
    bundled = [*(old.bundle(first // WIDTH) if size % WIDTH else ()), *entries]
    for at in range(0, len(bundled), WIDTH):
        framed = b"".join(len(each).to_bytes(_LENGTH_BYTES, "big") + each for each in bundled[at : at + WIDTH])
        _write(folder, ENTRIES, (first + at) // WIDTH, min(WIDTH, len(bundled) - at), framed)
    level, hashes, there = 0, [leaf_hash(entry) for entry in entries], size
    while hashes:
        index = there // WIDTH
        if there % WIDTH:
            hashes = [*old.hashes(level, index), *hashes]
        above = []
        for at in range(0, len(hashes), WIDTH):
            tile = hashes[at : at + WIDTH]
            _write(folder, level, index + at // WIDTH, len(tile), b"".join(tile))
            if len(tile) == WIDTH:
                above.append(root_of(tile))
        level, hashes, there = level + 1, above, there >> _LEVEL_BITS
    return size + len(entries)


def _write(folder: Path, level: int | str, index: int, width: int, data: bytes) -> None:
    path = folder / tile_name(level, index, width)
    create_durably(path, data)
    if width == WIDTH:
        shutil.rmtree(path.with_name(f"{path.name}.p"), ignore_errors=True)
