"""Files that a power cut has torn: Spark and Delta rename what they have written, and sync none of it.

Such a file is empty, cut off, or has NULs where its end was. A driver that is killed leaves none.
"""

from __future__ import annotations

import json
import zlib
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klamm_spark.storage.filesystems import AnyPath

DELTA_COMMIT: Final = "{:020d}.json"
_CHECKSUMS: Final = b"crc\0"
_PARQUET_END: Final = b"PAR1"


def torn_in_log(folder: AnyPath, *, least_lines: int = 1) -> Iterator[Path]:
    """The torn files of a log of Spark: those with numbers, from the newest one on that sums up all before it.

    A store has a file whole when it is there, so only a folder of this machine is looked at.
    """
    if not isinstance(folder, Path):
        return
    files = log_files(folder)
    start = max((number for number, path in files.items() if path.suffix), default=0)
    for index, path in sorted(files.items()):
        if index >= start and is_torn(path, least_lines):
            yield path


def log_files(folder: AnyPath) -> dict[int, Any]:
    """The files of a log of Spark by their numbers. One with the suffix `.compact` sums up all before it."""
    files: dict[int, Any] = {}
    for path in folder.glob("[0-9]*"):
        number, _, suffix = path.name.partition(".")
        if number.isdigit() and (suffix == "compact" or (not suffix and int(number) not in files)):
            files[int(number)] = path
    return files


def torn_in_delta_log(log: AnyPath) -> Iterator[Path]:
    """The torn commits of a Delta log after its newest checkpoint that is whole. Delta does without one that is not."""
    if not isinstance(log, Path):
        return
    for number in count(max(whole_checkpoints(log), default=-1) + 1):
        path = log / DELTA_COMMIT.format(number)
        if not path.exists():
            return
        if is_torn(path):
            yield path


def whole_checkpoints(log: Path) -> dict[int, list[Path]]:
    """The files of the checkpoints of a Delta log that are whole, by the number of the last commit in each."""
    checkpoints: dict[int, list[Path]] = {}
    for path in log.glob("[0-9]*.checkpoint*.parquet"):
        checkpoints.setdefault(int(path.name.partition(".")[0]), []).append(path)
    return {number: paths for number, paths in checkpoints.items() if all(map(_ends_as_parquet, paths))}


def _ends_as_parquet(path: Path) -> bool:
    return path.read_bytes().endswith(_PARQUET_END)


def is_cut(path: Path, size_bytes: int) -> bool:
    """Whether a Parquet file is missing, or has another size or end than it was written with, or differs from the
    checksum that Hadoop has put beside it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return True
    return len(data) != size_bytes or not data.endswith(_PARQUET_END) or _differs_from_checksum(path, data)


def is_torn(path: Path, least_lines: int = 1) -> bool:
    """Whether a file has fewer lines, or differs from the checksum that Hadoop has put beside it, or does not begin and
    end with objects of JSON, after a version if it has one. A file that is gone is not torn."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    lines = data.splitlines()
    if len(lines) < least_lines or _differs_from_checksum(path, data):
        return True
    if lines[0][:1] == b"v" and lines[0][1:].isdigit():
        del lines[0]
    return not all(map(_is_object, lines[:1] + lines[-1:]))


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        # Spark writes a dash for a source without an offset.
        return line == b"-"


def _differs_from_checksum(path: Path, data: bytes) -> bool:
    """Whether Hadoop would refuse to read it. Where a checksum file has no head, Hadoop goes on without."""
    try:
        sums = path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return False
    size_bytes = int.from_bytes(sums[4:8], "big")
    if not sums.startswith(_CHECKSUMS) or not size_bytes:
        return False
    pieces = (data[at : at + size_bytes] for at in range(0, len(data), size_bytes))
    return b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces) != sums[8:]
