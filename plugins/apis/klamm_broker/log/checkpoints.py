"""Small files that accompany the logs, in Kafka's formats: offset checkpoints, leader epochs, topic ids, clean
shutdown.

Offset checkpoints (`OffsetCheckpointFile`) have one offset per partition of a data directory; a
`leader-epoch-checkpoint` (`LeaderEpochCheckpointFile`) has the first offset of each leader epoch of one partition.
"""

from __future__ import annotations

import base64
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.files import stored_directory

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
CHECKPOINT_TOPIC_IDS: Final = "checkpoint-topic-ids"
"""klamm's own file, with the topic id of each partition in the other checkpoints."""
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'
_VERSION: Final = "0"
_ID_BYTES: Final = 16

TopicPartition = tuple[str, int]


class CorruptCheckpointError(Exception):
    """Raised for a checkpoint file with an invalid format."""


def _write(operations: FileOperations, path: Path, lines: Iterable[str], *, sync: bool) -> None:
    entries = list(lines)
    content = "\n".join([_VERSION, str(len(entries)), *entries, ""])
    operations.replace_content(path, content.encode(), sync=sync)


def _read(path: Path) -> list[list[str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None
    if not lines:
        # Kafka creates such files empty and fills them later.
        return []
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise CorruptCheckpointError(f"{path} is not a checkpoint of version {_VERSION}")
    return [line.split() for line in lines[2:]]


def write_offsets(operations: FileOperations, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write one offset per partition, durably. Raises OSError."""
    _write(
        operations, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()), sync=True
    )


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the offsets; empty if the file does not exist. Raises CorruptCheckpointError."""
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in _read(path)}
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None


def write_topic_ids(operations: FileOperations, path: Path, topic_ids: Mapping[TopicPartition, bytes]) -> None:
    """Write one topic id of 16 bytes per partition, durably. Raises OSError."""
    lines = (f"{topic} {partition} {_id_text(topic_id)}" for (topic, partition), topic_id in topic_ids.items())
    _write(operations, path, lines, sync=True)


def read_topic_ids(path: Path) -> dict[TopicPartition, bytes]:
    """Return the topic ids; empty if the file does not exist. Raises CorruptCheckpointError."""
    try:
        return {(topic, int(partition)): _id_bytes(text) for topic, partition, text in _read(path)}
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None


def _id_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _id_bytes(text: str) -> bytes:
    """Return the 16 bytes of a topic id. Raises ValueError."""
    topic_id = base64.urlsafe_b64decode(text + "==")
    if len(topic_id) != _ID_BYTES:
        raise ValueError(f"{text} is not a topic id")
    return topic_id


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first record that it wrote."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of a log in ascending order. The log's lock guards them; readers use `entries` without the
    lock.

    Follows Kafka's `LeaderEpochFileCache`.
    """

    __slots__ = ("_directory", "_operations", "entries", "latest")

    def __init__(self, directory: Path, operations: FileOperations) -> None:
        self._directory = stored_directory(directory)
        self._operations = operations
        self.entries: tuple[EpochEntry, ...] = ()
        self.latest = -1

    @property
    def _path(self) -> Path:
        return Path(self._directory, LEADER_EPOCHS)

    def load(self) -> None:
        """Read the file. Raises CorruptCheckpointError."""
        try:
            self._set(tuple(EpochEntry(int(epoch), int(offset)) for epoch, offset in _read(self._path)))
        except ValueError as error:
            raise CorruptCheckpointError(f"{self._path}: {error}") from None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that records from `start_offset` on belong to a new epoch. Raises OSError."""
        if epoch > self.latest:
            self._replace((*self.entries, EpochEntry(epoch, start_offset)))

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEntry | None:
        """Return the largest epoch that is not above the given one, and the offset after its records.

        For an epoch before all known epochs, return that epoch with the start offset of the first known one. For an
        epoch after the last one, return None.
        """
        entries = self.entries
        if not 0 <= epoch <= self.latest:
            return None
        index = bisect_right([entry.epoch for entry in entries], epoch) - 1
        if index < 0:
            return EpochEntry(epoch, entries[0].start_offset)
        end_offset = entries[index + 1].start_offset if index + 1 < len(entries) else log_end_offset
        return EpochEntry(entries[index].epoch, end_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that start at or after the end of the log. Raises OSError."""
        kept = tuple(entry for entry in self.entries if entry.start_offset < end_offset)
        if kept != self.entries:
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that end before the start of the log. Afterwards the epoch that contains the start begins there.
        Raises OSError.
        """
        if len(self.entries) == 0 or self.entries[0].start_offset >= start_offset:
            return
        later = tuple(entry for entry in self.entries if entry.start_offset > start_offset)
        current = self.entries[len(self.entries) - len(later) - 1]
        self._replace((EpochEntry(current.epoch, start_offset), *later))

    def _replace(self, entries: tuple[EpochEntry, ...]) -> None:
        _write(self._operations, self._path, (f"{epoch} {offset}" for epoch, offset in entries), sync=False)
        self._set(entries)

    def _set(self, entries: tuple[EpochEntry, ...]) -> None:
        self.entries = entries
        self.latest = entries[-1].epoch if entries else -1


def write_partition_metadata(operations: FileOperations, directory: Path, topic_id: bytes) -> None:
    """Write the topic id of a partition's directory; `sync_partition_metadata` makes it durable. Raises OSError."""
    text = f"version: 0\ntopic_id: {_id_text(topic_id)}"
    operations.replace_content(directory / PARTITION_METADATA, text.encode(), sync=False)


def sync_partition_metadata(operations: FileOperations, directory: Path) -> None:
    """Make the file with the topic id of a partition's directory durable, but not its directory entry. Raises
    OSError.
    """
    descriptor = operations.open(directory / PARTITION_METADATA, os.O_RDWR)
    try:
        operations.fsync(descriptor)
    finally:
        operations.close(descriptor)


def read_partition_metadata(directory: Path) -> bytes | None:
    """Return the 16-byte topic id; None if the file is missing or unreadable."""
    try:
        lines = (directory / PARTITION_METADATA).read_text(encoding="utf-8").splitlines()
        values = dict(line.split(":", 1) for line in lines if line)
        return _id_bytes(values["topic_id"].strip())
    except (OSError, ValueError, KeyError):
        return None
