"""Helpers for the tests of the log: logs on a temporary directory, batches, and a disk that can be made to fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from klamm.testing import ManualClock
from klamm.wire.records import Record, RecordBatchHeader, decode_records, encode_batch, iterate_batches
from klamm_broker.log.config import LogConfig
from klamm_broker.log.context import LogContext
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.files import OpenFiles
from klamm_broker.log.partition_log import PartitionLog

TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000
OPENED: list[PartitionLog] = []
"""The logs that a test has opened. Their files are closed at the end of the test."""


class FailingDisk(FileOperations):
    """File calls that can be made to fail.

    `free_bytes` is the number of bytes that can be written before ENOSPC; None for any number. `failing` names calls
    that raise EIO. `after_rename` is called after each rename.
    """

    __slots__ = ("after_rename", "failing", "free_bytes", "synced")

    def __init__(self) -> None:
        self.free_bytes: int | None = None
        self.failing: set[str] = set()
        self.synced: list[str] = []
        self.after_rename: Callable[[], None] | None = None

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:  # type: ignore[override]
        self._check("pwrite")
        if self.free_bytes is None:
            return os.pwrite(descriptor, data, position)
        if self.free_bytes == 0:
            raise OSError(errno.ENOSPC, "no space")
        written = os.pwrite(descriptor, memoryview(data)[: self.free_bytes], position)
        self.free_bytes -= written
        return written

    def fsync(self, descriptor: int) -> None:  # type: ignore[override]
        self._check("fsync")
        self.synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def ftruncate(self, descriptor: int, size_bytes: int) -> None:
        self._check("ftruncate")
        os.ftruncate(descriptor, size_bytes)

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        self._check("rename")
        os.replace(source, target)
        if self.after_rename is not None:
            self.after_rename()

    def _check(self, call: str) -> None:
        if call in self.failing:
            raise OSError(errno.EIO, f"{call} fails")


class LogPlaybook:
    """One partition's directory, and the log that is open on it.

    Configs are topic configs, with underscores for dots.
    """

    def __init__(self, directory: Path, **configs: object) -> None:
        self.directory = directory
        self.directory.mkdir(exist_ok=True)
        self.disk = FailingDisk()
        self.clock = ManualClock(START_MS)
        self.open_files = OpenFiles(8)
        self.context = LogContext(self.clock, self.disk, self.open_files, lambda below: below - 1)
        self.config = config(**configs)
        self.log = self.open(is_clean=False)

    def open(self, *, is_clean: bool, recovery_point: int = 0, log_start_offset: int = 0) -> PartitionLog:
        """Open the directory in its present state."""
        self.log = PartitionLog(
            self.directory,
            "topic",
            0,
            self.config,
            self.context,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
        OPENED.append(self.log)
        return self.log

    def reopen(self) -> PartitionLog:
        """Close in order and open again."""
        start_offset = self.log.log_start_offset
        self.log.close(self.clock.wall_ms())
        return self.open(is_clean=True, log_start_offset=start_offset)

    def crash(self, *, recovery_point: int = 0) -> PartitionLog:
        """Open again without closing. Data that was not written to a file is lost."""
        self.log.close_files()
        return self.open(is_clean=False, recovery_point=recovery_point, log_start_offset=self.log.log_start_offset)

    def append(self, *values: bytes | None, key: bytes | None = b"k", **batch: int) -> int:
        """Append one batch of records with these values. Return its base offset."""
        data = produced(*values, key=key, timestamp_ms=self.clock.wall_ms(), **batch)
        return self.log.append(data, now_ms=self.clock.wall_ms()).base_offset

    def append_keyed(self, *pairs: tuple[bytes, bytes | None]) -> int:
        """Append one batch of keys and values. Return its base offset."""
        records = [Record(timestamp_ms=self.clock.wall_ms(), key=key, value=value) for key, value in pairs]
        return self.log.append(encode_batch(records), now_ms=self.clock.wall_ms()).base_offset

    def records(self) -> list[Record]:
        """Return every record, read through the log from its start to its end."""
        return list(read_all(self.log))

    def values(self) -> list[bytes | None]:
        """Return the values of all records."""
        return [record.value for record in self.records()]

    def files(self) -> set[str]:
        """Return the names of the files in the directory."""
        return {path.name for path in self.directory.iterdir()}


def config(**configs: object) -> LogConfig:
    """Return the config of a log.

    Underscores stand for dots. `segment_bytes` may be smaller than in a topic's config.
    """
    names = {name.replace("_", "."): str(value) for name, value in configs.items()}
    if "segment.bytes" in names:
        names["internal.segment.bytes"] = names.pop("segment.bytes")
    return LogConfig(names)


def produced(*values: bytes | None, key: bytes | None = b"k", timestamp_ms: int = START_MS, **batch: int) -> bytearray:
    """Return a batch as a producer sends it."""
    return encode_batch([Record(timestamp_ms=timestamp_ms, key=key, value=value) for value in values], **batch)


def read_all(log: PartitionLog, *, committed_only: bool = False, max_bytes: int = 1 << 20) -> Iterator[Record]:
    """Return every record from the start of the log on, fetched as a consumer does."""
    offset = log.log_start_offset
    while True:
        batches = fetch_batches(log, offset, max_bytes, committed_only=committed_only)
        if not batches:
            return
        for header, batch in batches:
            yield from (record for record in decode_records(batch) if record.offset >= offset)
            offset = header.last_offset + 1


def fetch(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, *, committed_only: bool = False) -> list[Record]:
    """Return the records of one read, from whole batches only."""
    batches = fetch_batches(log, offset, max_bytes, committed_only=committed_only)
    return [record for _header, batch in batches for record in decode_records(batch)]


def fetch_batches(
    log: PartitionLog, offset: int, max_bytes: int = 1 << 20, *, committed_only: bool = False
) -> list[tuple[RecordBatchHeader, memoryview]]:
    """Return the whole batches of one read."""
    found = log.read(offset, max_bytes, min_one_message=True, committed_only=committed_only)
    if isinstance(found.records, bytes):
        return []
    data = found.records.read_bytes()
    found.records.close()
    return list(iterate_batches(data))
