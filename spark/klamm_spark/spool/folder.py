"""`SpoolFolder`: the folder of one stream of a node, its sealed segments, the end of its hash chain, and pending
deletions.

The writer's thread of `AuditSink` uses it, through `Spool`. A segment that has its final name is never changed again.
Two things may still be left to do: make the name durable, and delete the file that the segment replaces.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from klamm.runtime import Clock
from klamm_spark.events.event import SCHEMA_VERSION
from klamm_spark.spool.compression import compress, decompress
from klamm_spark.spool.layout import (
    COMPRESSED_SUFFIXES,
    NO_CHAIN,
    SEAL_SUFFIX,
    SEALED_SUFFIX,
    SHIPPED_SUFFIX,
    Seal,
    Sister,
    beside,
    chain_of,
    lines_sha256,
    sealed_segments,
    unreadable_files,
)
from klamm_spark.spool.segment import OpenSegment
from klamm_spark.spool.signatures import PUBLIC_SUFFIX, SealSigner
from klamm_spark.storage.files import SpoolFiles

log = logging.getLogger("klamm.audit")


class SpoolError(Exception):
    """The spool cannot be written now. The message gives the reason. A later attempt may succeed."""


class SpoolFolder:
    """The files of one stream of a node.

    `sealed` maps sealed segments to their sizes, and `unreadable` maps files with the suffix `.unreadable`. `newest` is
    the last seal of the hash chain, which the next one continues; `newest_folder` is the folder of that seal.
    """

    def __init__(
        self,
        path: Path,
        node: str,
        compression: str,
        clock: Clock,
        files: SpoolFiles,
        signer: SealSigner | None = None,
    ) -> None:
        self.path = path
        self._signer = signer
        self._node = node
        self.files = files
        self.sealed: dict[Path, int] = {}
        self.unreadable: dict[Path, int] = {}
        self.newest: Seal | None = None
        self.newest_folder = path
        self.sealed_count = 0
        self._compression = compression
        self._suffix = SEALED_SUFFIX + COMPRESSED_SUFFIXES[compression]
        self._clock = clock
        self.sisters: Callable[[], Iterable[SpoolFolder]] = tuple
        """Return the folders of the server's other streams."""
        self._leftovers: list[Path] = []
        self._unsynced: set[Path] = set()

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all sealed segments and unreadable files."""
        return sum(self.sealed.values()) + sum(self.unreadable.values())

    def measure(self) -> None:
        """Read the sizes again, because a user may have deleted files. Raises OSError."""
        self.sealed = self._sizes(sealed_segments(self.path))
        self.unreadable = self._sizes(unreadable_files(self.path))

    def _sizes(self, paths: list[Path]) -> dict[Path, int]:
        found: dict[Path, int] = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                found[path] = self.files.stat(path).st_size
        return found

    def has_segment(self, stem: str) -> bool:
        """Return True if there is a sealed segment with the name `stem`, compressed or not."""
        return any(path.name.partition(".")[0] == stem for path in self.sealed)

    def newest_lines(self) -> bytes:
        """Return the lines of the newest sealed segment, or nothing if it cannot be read."""
        path = max(self.sealed, key=_by_name, default=None)
        if path is None:
            return b""
        try:
            return decompress(self.files.read(path), path.suffix)
        except (OSError, ValueError):
            return b""

    def is_shipped(self, path: Path) -> bool:
        """Return True if `ship` has copied a sealed segment to the lake. Raises OSError."""
        try:
            self.files.stat(beside(path, SHIPPED_SUFFIX))
        except FileNotFoundError:
            return False
        return True

    def read_seal(self, path: Path) -> Seal | None:
        """Return the seal of a segment's file. If it is missing or unreadable, log that and return None."""
        try:
            return Seal.parse(self.files.read(beside(path, SEAL_SUFFIX)))
        except (OSError, ValueError) as error:
            log.error("audit spool %s: no seal: %s", path, error)
            return None

    # ---- names and leftovers

    @property
    def is_settled(self) -> bool:
        """Return True if all names are durable and nothing is left to delete."""
        return not self._unsynced and not self._leftovers

    def names_changed(self, folder: Path | None = None) -> None:
        """Note that files of a folder were created, renamed or deleted, so it must be synced. The default is the node's
        folder.
        """
        self._unsynced.add(folder or self.path)

    def delete_later(self, path: Path) -> None:
        """Delete a file when the names are durable."""
        self._leftovers.append(path)

    def sync_names(self) -> None:
        """Sync the folders whose names have changed. Raises OSError."""
        # Folders of days first: a file may leave the node's folder only once its new name is durable.
        for folder in sorted(self._unsynced, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                self.files.sync_directory(folder)
            self._unsynced.discard(folder)

    def settle(self) -> None:
        """Make names durable, then delete the files of `delete_later`. Raises SpoolError; the next call continues."""
        try:
            self.sync_names()
            while self._leftovers:
                path = self._leftovers[-1]
                self.files.remove(path)
                self._leftovers.pop()
                if path.parent not in (self.path, self.newest_folder):
                    self._remove_if_empty(path.parent)
            self.sync_names()
        except OSError as error:
            raise self.error(error) from error

    def _remove_if_empty(self, day: Path) -> None:
        with contextlib.suppress(OSError):
            self.files.remove_folder(day)
            self.names_changed()

    def error(self, error: OSError) -> SpoolError:
        """Return a SpoolError that names the folder."""
        return SpoolError(f"{self.path}: {error.strerror or error}")

    def forget(self, path: Path) -> None:
        """Note that a segment or an unreadable file was deleted. Delete its seal too, unless the chain needs it."""
        self.names_changed(path.parent)
        if self.unreadable.pop(path, None) is not None:
            return
        del self.sealed[path]
        self.delete_later(beside(path, SHIPPED_SUFFIX))
        if self.newest is None or path.name.partition(".")[0] != self.newest.segment:
            self.delete_later(beside(path, SEAL_SUFFIX))

    # ---- sealing

    def seal(
        self,
        segment: OpenSegment,
        *,
        final: bool = False,
        clean: bool = True,
        torn_bytes: int = 0,
        copied: bytes | None = None,
    ) -> None:
        """Write the seal and give the segment its final name. After an OSError the segment does not have it yet.

        With `copied`, a new file with these lines becomes the segment.
        """
        previous, previous_folder = self.newest, self.newest_folder
        seal = self._seal_of(segment, final=final, clean=clean, torn_bytes=torn_bytes)
        day = self.path / segment.day
        self.names_changed()
        self.files.make_folder(day)
        self.names_changed(day)
        self._write_seal(seal, day)
        target = day / f"{seal.segment}{self._suffix}"
        size_bytes = segment.size_bytes
        renamed = self._compression == "none" and copied is None
        try:
            if renamed:
                self.files.rename(segment.path, target)
            else:
                data = segment.take_compressed() if copied is None else None
                if data is None:
                    data = compress(segment.path.read_bytes() if copied is None else copied, self._compression)
                size_bytes = len(data)
                self.files.write_whole(target, data)
        except OSError:
            # A network file system may have written the file, and failed to confirm it.
            if not target.exists():
                raise
        if not renamed:
            self.delete_later(segment.path)
        self.sealed[target] = size_bytes
        self.newest, self.newest_folder = seal, day
        self.sealed_count += 1
        if previous is not None and not self.has_segment(previous.segment):
            self.delete_later(previous_folder / f"{previous.segment}{SEAL_SUFFIX}")

    def _write_seal(self, seal: Seal, folder: Path) -> None:
        signed = seal if self._signer is None else self._signer.signed(seal)
        self.files.write_whole(folder / f"{seal.segment}{SEAL_SUFFIX}", signed.to_json())

    def publish_key(self) -> None:
        """Write the public key of the signatures to the folder, unless the folder has it. Raises OSError."""
        if self._signer is not None:
            path = self.path / f"{self._signer.key_id}{PUBLIC_SUFFIX}"
            if not path.exists():
                self.files.write_whole(path, self._signer.public_pem)

    def _seal_of(self, segment: OpenSegment, *, final: bool, clean: bool, torn_bytes: int) -> Seal:
        sha256, previous, digests = segment.sha256.hexdigest(), self.newest, lines_sha256(segment.digests)
        previous_chain = previous.chain if previous is not None else NO_CHAIN
        return Seal(
            schema_version=SCHEMA_VERSION,
            node=self._node,
            boot=segment.name.boot,
            index=previous.index + 1 if previous is not None else 0,
            segment=segment.name.stem,
            first_seq=segment.name.first_seq,
            last_seq=segment.last_seq,
            events=segment.events,
            size_bytes=segment.size_bytes,
            sha256=sha256,
            previous_chain=previous_chain,
            chain=chain_of(previous_chain, sha256, digests),
            sealed_time_us=self._clock.wall_us(),
            torn_bytes=torn_bytes,
            clean=clean,
            final=final,
            lines_sha256=digests,
            sisters=",".join(str(Sister.of(one.newest)) for one in self.sisters() if one.newest is not None),
        )

    def seal_failed(self, segment: OpenSegment) -> None:
        """Seal a copy of the lines that can still be read. The copy is synced as a whole. Raises OSError."""
        data = segment.path.read_bytes()[: segment.size_bytes]
        torn_bytes = 0
        if hashlib.sha256(data).digest() != segment.sha256.digest():
            torn_bytes = segment.recount(data)
        if segment.events:
            self.seal(segment, clean=False, torn_bytes=torn_bytes, copied=data[: segment.size_bytes])
        else:
            self.delete_later(segment.path)

    def mark_final(self, seal: Seal) -> None:
        """Write into the newest seal that its boot ended in order. Raises SpoolError."""
        try:
            self._write_seal(replace(seal, final=True), self.newest_folder)
            self.files.sync_directory(self.newest_folder)
        except OSError as error:
            raise self.error(error) from error


def _by_name(path: Path) -> str:
    return path.name
