"""The layout of the lake, and `Lake`, which opens its table.

```
LAKE/
    events/                      a Delta table: every event once; partitioned by date=…/hour=…
        _delta_log/              the commits. A file that no commit names does not belong to the table
        date=2026-01-01/hour=7/part-….parquet
        date=__HIVE_DEFAULT_PARTITION__/…    the quarantine: lines that are not events, in `bad_line`
    seals/….parquet              the ledger: the seals of all shipped segments, see `klamm_spark.lake.seals`
    keys/FOLDER/KEY_ID.pub       public keys of the servers, see `klamm_spark.lake.keys`
    forgotten/….parquet          records of deletions by `klamm audit forget`, see `klamm_spark.lake.forgotten`
    .ship.lock                   locked by the driver that ships
```
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from klamm_spark.errors import LakeError
from klamm_spark.storage.filesystems import MOST_COMMIT_BYTES, AnyPath, path_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from klamm_spark.settings.spark import SparkSettings

PARTITIONS: Final = ("date", "hour")
COMMITS: Final = "_delta_log"
_COMMIT_SUFFIXES: Final = (".json", ".parquet")
MIN_KEEP_HOURS: Final = 168
"""The minimum age at which `compact` deletes files. Younger files may be in use, or wait for their commit."""


def require_packages() -> None:
    """Raise LakeError if a package that a lake needs is not installed."""
    missing = [name for name in ("pyarrow", "duckdb", "deltalake") if importlib.util.find_spec(name) is None]
    if missing:
        raise LakeError(f"a lake needs {', '.join(missing)}: pip install 'klamm[lake]'")


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake below `root`."""

    root: AnyPath

    @staticmethod
    def of(settings: SparkSettings) -> Lake:
        """Return the lake that the settings name."""
        return Lake(path_of(settings.lake))

    @property
    def events(self) -> AnyPath:
        """Return the table of events."""
        return self.root / "events"

    @property
    def seals(self) -> AnyPath:
        """Return the table of seals."""
        return self.root / "seals"

    @property
    def forgotten(self) -> AnyPath:
        """Return the table of records of forgotten events."""
        return self.root / "forgotten"

    def require_events(self) -> list[AnyPath]:
        """Return the files of the log whose names begin with a version. Raises LakeError if there is no table yet."""
        files = self._versions()
        if not _are_of_a_table(files):
            raise LakeError(f"nothing was shipped to {self.root} yet: run klamm audit ship")
        return files

    def has_events(self) -> bool:
        """Return True if the table exists."""
        return _are_of_a_table(self._versions())

    def _versions(self) -> list[AnyPath]:
        return list((self.events / COMMITS).glob("[0-9]*"))

    def table_id(self) -> str:
        """Return the random id that Delta gave the table of events when it was created."""
        return str(self.table().metadata().id)

    def table(self, *, to_change: bool = False) -> DeltaTable:
        """Return the table of events as it is now, with the quarantine. Raises LakeError.

        Before a change it gets a checkpoint, if the commits since the last one would take much memory together.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        from klamm_spark.lake.table_log import check_table_log

        commits_bytes = check_table_log(self.events / COMMITS, self.require_events())
        try:
            table = DeltaTable(str(self.events))
            if to_change and commits_bytes > MOST_COMMIT_BYTES:
                table.create_checkpoint()
            return table
        except (DeltaError, OSError, ValueError) as error:
            said = " ".join(str(error).split())
            raise LakeError(
                f"{self.events} cannot be read: {said}. If a power cut has torn its newest commit, delete that file of "
                f"{COMMITS} with the files beside it that have its number: nothing of it is marked as shipped"
            ) from error


def _are_of_a_table(files: Iterable[AnyPath]) -> bool:
    # Files that a killed driver has prepared for a commit have other suffixes.
    return any(path.suffix in _COMMIT_SUFFIXES for path in files)
