"""Producer snapshots on disk: a `.snapshot` file for the start of each segment, and one for the end of the log at its
last close.
"""

from __future__ import annotations

import logging
from pathlib import Path

from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.files import stored_directory
from klamm_broker.log.producer_state import CorruptSnapshotError, ProducerStateManager
from klamm_broker.log.segment import SNAPSHOT_SUFFIX, offset_file_name

log = logging.getLogger("klamm.broker.log")


class ProducerSnapshots:
    """The snapshots of one log, by the offset at which they were taken. The log's lock guards them."""

    __slots__ = ("_directory", "_operations", "offsets")

    def __init__(self, directory: Path, operations: FileOperations, offsets: set[int]) -> None:
        self._directory = stored_directory(directory)
        self._operations = operations
        # A tuple takes less memory than a set, and most logs have one snapshot or none.
        self.offsets = tuple(offsets)

    def write(self, producers: ProducerStateManager, offset: int) -> None:
        """Store the producers' state at an offset. Raises OSError."""
        if offset not in self.offsets:
            self._operations.replace_content(self._path(offset), producers.snapshot(), sync=False)
            self.offsets = (*self.offsets, offset)

    def load_latest(self, producers: ProducerStateManager, log_start_offset: int, offset: int) -> int:
        """Load the latest sound snapshot between the log's start and an offset.

        Returns the offset from which batches must be replayed. Snapshots that cannot be read are removed.
        """
        producers.clear()
        for candidate in sorted(self.offsets, reverse=True):
            if not log_start_offset < candidate <= offset:
                continue
            try:
                producers.load(self._path(candidate).read_bytes())
            except (CorruptSnapshotError, OSError) as error:
                log.warning("%s cannot be used: %s", self._path(candidate), error)
                self.remove(candidate)
            else:
                return candidate
        return log_start_offset

    def remove(self, offset: int) -> None:
        """Remove the snapshot at an offset, if it exists."""
        if offset in self.offsets:
            self.offsets = tuple(each for each in self.offsets if each != offset)
            self._operations.remove(self._path(offset))

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots at higher offsets."""
        for candidate in [each for each in self.offsets if each > offset]:
            self.remove(candidate)

    def keep_only(self, offsets: set[int]) -> None:
        """Remove the snapshots at all other offsets, except the last snapshot."""
        for candidate in sorted(self.offsets)[:-1]:
            if candidate not in offsets:
                self.remove(candidate)

    def _path(self, offset: int) -> Path:
        return Path(self._directory, offset_file_name(offset, SNAPSHOT_SUFFIX))
