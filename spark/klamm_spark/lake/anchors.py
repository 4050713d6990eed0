"""Anchors: the newest seal of each stream, kept at a place that a writer of the lake cannot change.

A chain of seals proves everything before its newest seal. An anchor proves how far the chain went. `ship` appends
anchors to a file, one JSON object a line, or calls a function with each of them, which may send it to a topic or to a
service for time stamps. `klamm audit verify --anchors FILE` names each anchored seal that the lake lacks, or has with
another chain.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.spool.layout import Seal, stream_mark
from klamm_spark.storage.files import SpoolFiles
from klamm_spark.storage.filesystems import AnyPath, read_file

_KEYS: Final = ("node", "segment", "index", "chain", "sealed_time_us")
Anchor = Callable[[dict[str, Any]], None]
"""A function that `ship` calls with the values `_KEYS` of a seal. If the function raises an exception, `ship` ends
before it marks the segment.
"""


def open_anchor(place: str) -> Anchor:
    """Return the function that `MODULE:NAME` names, or one that appends to the file `place`. Raises LakeError."""
    module, colon, name = place.partition(":")
    if colon and module.replace(".", "").isidentifier() and name.isidentifier():
        try:
            found: Anchor = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise LakeError(f'anchor = "{place}": {error}') from error
        return found
    return FileAnchor(Path(place))


class FileAnchor:
    """Appends a line to a file, and syncs it. Raises LakeError."""

    def __init__(self, path: Path, files: SpoolFiles | None = None) -> None:
        self._path = path
        self._files = files or SpoolFiles()

    def __call__(self, anchored: dict[str, Any]) -> None:
        line = json.dumps(anchored, separators=(",", ":")).encode() + b"\n"
        try:
            descriptor = self._files.open_append(self._path)
            try:
                self._append(descriptor, line)
            finally:
                self._files.close(descriptor)
        except OSError as error:
            raise LakeError(f"{self._path}: {error.strerror}: seals cannot be anchored") from error

    def _append(self, descriptor: int, line: bytes) -> None:
        size_bytes = os.fstat(descriptor).st_size
        try:
            # If a crash has left the last line incomplete, end it first, so that only that line is lost.
            self._files.write_all(descriptor, line if self._is_whole(size_bytes) else b"\n" + line)
            self._files.fsync(descriptor)
            if not size_bytes:
                self._files.sync_directory(self._path.parent)
        except OSError:
            # Files on some systems can only grow. Then the incomplete line stays.
            with contextlib.suppress(OSError):
                self._files.truncate(descriptor, size_bytes)
            raise

    def _is_whole(self, size_bytes: int) -> bool:
        """Return True if the file ends with a complete line, or cannot be read."""
        if size_bytes:
            with contextlib.suppress(OSError), self._path.open("rb") as file:
                file.seek(size_bytes - 1)
                return file.read(1) == b"\n"
        return True


def newest_of(seals: Iterable[Seal]) -> list[dict[str, Any]]:
    """Return the seals to anchor: the newest of each stream."""
    newest: dict[tuple[str, str], Seal] = {}
    for seal in seals:
        stream = seal.node, stream_mark(seal.boot)
        if stream not in newest or newest[stream].index < seal.index:
            newest[stream] = seal
    return [{key: getattr(seal, key) for key in _KEYS} for _, seal in sorted(newest.items())]


class Anchors(NamedTuple):
    """The lines of a file with anchors."""

    path: AnyPath
    lines: Sequence[bytes]


def read_anchors(path: AnyPath) -> Anchors:
    """Read a file of anchors. Raises LakeError.

    Read it before the ledger: `ship` anchors a seal before it adds it to the ledger.
    """
    try:
        return Anchors(path, read_file(path, may_wait=True).splitlines())
    except FileNotFoundError as error:
        raise LakeError(f"there are no anchors at {path}") from error


def compare_anchors(anchors: Anchors, seals: Mapping[str, Seal]) -> Iterator[str]:
    """Yield a sentence for each anchored seal that the lake does not have."""
    path = anchors.path
    for number, line in enumerate(anchors.lines, start=1):
        try:
            anchored = json.loads(line)
            if "checkpoint" in anchored:
                # `check_log` compares the checkpoints of the log.
                continue
            segment, chain = anchored["segment"], anchored["chain"]
            seal = seals.get(segment)
        except (ValueError, KeyError, TypeError, RecursionError):
            yield f"{path}:{number} is not an anchor"
            continue
        if seal is None:
            yield f"{segment} of {anchored.get('node')} was anchored ({path}:{number}), and the lake has no seal of it"
        elif seal.chain != chain:
            yield f"{segment} of {seal.node} was anchored ({path}:{number}) with another chain than it has in the lake"
