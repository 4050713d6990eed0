"""`Saved`: one share partition with its own store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType

from klamm_broker.share import persistence
from klamm_broker.share.partition import SharePartition
from klamm_broker.share.persistence import SavedPartition, SharePartitionKey
from klamm_broker.share.record_state import RecordState
from klamm_broker.share.state_changes import StateUpdate
from klamm_broker.storage.store import Store

KEY = SharePartitionKey("g", b"i" * 16, 0)


class Saved:
    """A store that writes with the broker's statements, and loads as the broker does at its start."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="klamm-share-")
        self.store = Store(Path(self._directory.name) / "klamm.db")
        self.store.is_temporary = True
        self.store.open()
        self.store.write_and_wait(
            [
                (
                    "INSERT INTO share_groups (group_id, epoch, assignment_epoch, metadata_hash) VALUES (?, 0, 0, '')",
                    ("g",),
                )
            ]
        )

    def __enter__(self) -> Saved:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the store."""
        self.store.close()
        self._directory.cleanup()

    def commit(self, update: StateUpdate) -> None:
        """Write the changes."""
        self.store.write_and_wait(persistence.put(KEY, update))

    def read(self) -> SavedPartition | None:
        """Return the rows that a start finds."""
        return next(iter(persistence.load(self.store)), None)

    def load(self) -> SharePartition:
        """Return the partition after a start; a new one if there are no rows."""
        saved = self.read()
        return SharePartition(0) if saved is None else SharePartition(saved.start_offset, saved.batches, is_stored=True)

    def states(self) -> dict[int, tuple[RecordState, int]]:
        """Return state and delivery count of each offset in flight."""
        saved = self.read()
        return {
            offset: (each.state, each.delivery_count)
            for each in (saved.batches if saved is not None else ())
            for offset in range(each.first, each.last + 1)
        }
