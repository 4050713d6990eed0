"""`OffsetCheckpoints`: the offset checkpoints of a data directory, and the topics to which their entries belong.

Kafka's files contain the topic's name but not its id, so an entry can survive its topic and apply to a new topic of
that name. Two rules prevent that. First, an entry is removed before a directory with its name is created. Second,
klamm's own file `checkpoint-topic-ids` has the topic id of each entry, and an entry with another id is ignored.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from klamm_broker.log.checkpoints import (
    CHECKPOINT_TOPIC_IDS,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpointError,
    TopicPartition,
    read_offsets,
    read_topic_ids,
    write_offsets,
    write_topic_ids,
)
from klamm_broker.log.file_operations import FileOperations

log = logging.getLogger("klamm.broker.log")

_FILES: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)

Collect = Callable[[], tuple[Iterable[TopicPartition], Mapping[TopicPartition, int]]]
"""A function that returns the open partitions, and the offsets to be written."""


class OffsetCheckpoints:
    """Recovery points, log start offsets and cleaner offsets by partition.

    Any thread may call any method. One lock is held while files are written, so that no earlier write restores an entry
    that a deletion has removed.
    """

    def __init__(self, data_dir: Path, operations: FileOperations) -> None:
        self._data_dir = data_dir
        self._operations = operations
        self._lock = threading.Lock()
        # The entries of the files, including those that a failed write may have written.
        self._entries: dict[str, dict[TopicPartition, int]] = {name: {} for name in _FILES}
        # The topic ids in the file, and those of partitions that were opened since the last write.
        self._topic_ids: dict[TopicPartition, bytes] = {}
        self._has_new_ids = False

    def load(self) -> None:
        """Read the files. A file that cannot be parsed is logged and counts as empty. Raises OSError."""
        for name in _FILES:
            try:
                self._entries[name] = read_offsets(self._data_dir / name)
            except CorruptCheckpointError as error:
                log.warning("%s: it is ignored", error)
        try:
            self._topic_ids = read_topic_ids(self._data_dir / CHECKPOINT_TOPIC_IDS)
        except CorruptCheckpointError as error:
            log.warning("%s: it is ignored", error)

    def offset(self, name: str, key: TopicPartition, topic_id: bytes) -> int:
        """Return the offset in a file for a partition of this topic; 0 if the file has none."""
        offset = self._entries[name].get(key, 0)
        if offset and self._topic_ids.get(key, topic_id) != topic_id:
            log.warning("%s: the entry of %s-%d belongs to an earlier topic of that name: ignored", name, *key)
            return 0
        return offset

    def open(self, key: TopicPartition, topic_id: bytes) -> None:
        """Note that a partition's directory is open. From now on the partition's entries belong to this topic."""
        if self._topic_ids.get(key) != topic_id:
            self._topic_ids[key] = topic_id
            self._has_new_ids = True

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Remove the entries of partitions, durably. Raises OSError."""
        gone = set(keys)
        with self._lock:
            for name, entries in self._entries.items():
                if entries.keys() & gone:
                    self._write(name, {key: offset for key, offset in entries.items() if key not in gone})
            for key in gone:
                self._topic_ids.pop(key, None)

    def replace(self, name: str, collect: Collect) -> None:
        """Rewrite a file durably, with new values for the open logs. Raises OSError."""
        with self._lock:
            opened, offsets = collect()
            taken = set(opened)
            kept = {key: offset for key, offset in self._entries[name].items() if key not in taken}
            self._write_topic_ids()
            self._write(name, kept | dict(offsets))

    def _write(self, name: str, entries: dict[TopicPartition, int]) -> None:
        write_offsets(self._operations, self._data_dir / name, entries)
        self._entries[name] = entries

    def _write_topic_ids(self) -> None:
        """Write the topic ids before the entries. The entries of deleted topics were removed with the topics."""
        if self._has_new_ids:
            self._has_new_ids = False
            try:
                # Copied, because other threads open partitions meanwhile.
                write_topic_ids(self._operations, self._data_dir / CHECKPOINT_TOPIC_IDS, self._topic_ids.copy())
            except BaseException:
                self._has_new_ids = True
                raise
