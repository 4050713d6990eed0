"""`OffsetCheckpoints`: the offset checkpoints of a data directory, and the topics that their entries belong to.

Kafka's files name a topic and not its id, so an entry can outlive its topic and apply to a new topic of that name. Two
rules prevent that. An entry is removed before a directory of its name is created. And a file of klamm's own,
`checkpoint-topic-ids`, has the topic id of each entry: an entry with another id is ignored.
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
"""The partitions that are open, and the offsets of those that have one to be written."""


class OffsetCheckpoints:
    """Recovery points, log start offsets and cleaner offsets by partition.

    Threads: any may call anything; one lock is held while files are written, so that what a deletion has removed does
    not come back with a write that was started before it.
    """

    def __init__(self, data_dir: Path, operations: FileOperations) -> None:
        self._data_dir = data_dir
        self._operations = operations
        self._lock = threading.Lock()
        # What the files have, or may have after a write that failed.
        self._entries: dict[str, dict[TopicPartition, int]] = {name: {} for name in _FILES}
        # Of the file, and of what was opened since it was written.
        self._topic_ids: dict[TopicPartition, bytes] = {}
        self._has_new_ids = False

    def load(self) -> None:
        """Read the files; one that cannot be understood counts as empty, with a line in the log. Raises OSError."""
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
        """The offset that a file has for a partition of this topic; 0 if it has none."""
        offset = self._entries[name].get(key, 0)
        if offset and self._topic_ids.get(key, topic_id) != topic_id:
            log.warning("%s: the entry of %s-%d belongs to an earlier topic of that name: ignored", name, *key)
            return 0
        return offset

    def open(self, key: TopicPartition, topic_id: bytes) -> None:
        """A partition's directory is open: its entries are of this topic from now on."""
        if self._topic_ids.get(key) != topic_id:
            self._topic_ids[key] = topic_id
            self._has_new_ids = True

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Remove the entries of partitions, durably. Does nothing if there are none. Raises OSError."""
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
        """Write the topic ids, before the entries: the entries of deleted topics were removed with the topics."""
        if self._has_new_ids:
            self._has_new_ids = False
            try:
                # A copy: others open partitions meanwhile.
                write_topic_ids(self._operations, self._data_dir / CHECKPOINT_TOPIC_IDS, self._topic_ids.copy())
            except BaseException:
                self._has_new_ids = True
                raise
