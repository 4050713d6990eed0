"""The layout of the lake, and which of its files belong to a table.

```
LAKE/
    events/                      every event once; partitioned by date=…/hour=…
        _spark_metadata/         Parquet: the commit log. Files that it does not name do not belong to the table
        _delta_log/              Delta: the same
        date=2026-01-01/hour=7/part-….parquet
        date=__HIVE_DEFAULT_PARTITION__/…    the quarantine: lines that are not events, in `bad_line`
    keys/FOLDER/KEY_ID.pub       public keys of the servers, see `klamm_spark.lake.keys`
    seals/….parquet              the seals of all shipped segments, see `klamm_spark.lake.seals`
    forgotten/….parquet          what `klamm audit forget` has deleted, see `klamm_spark.lake.forgotten`
    .ship.lock                   locked by the driver that ships
    checkpoints/ship/            what has been shipped; `ship` cannot continue `events` without it
```
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.torn import is_torn, log_files, torn_in_delta_log, torn_in_log
from klamm_spark.storage.filesystems import (
    AnyPath,
    HadoopPath,
    move_file,
    path_from_uri,
    path_of,
    remove_tree,
    replace_durably,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from klamm_spark.settings.spark import SparkSettings

COMMIT_LOG: Final = "_spark_metadata"
MIN_KEEP_HOURS: Final = 1
"""Younger files of the lake are never deleted: they may be about to be committed."""
PARTITIONS: Final = ("date", "hour")
MOVED: Final = "events-delta"
"""What `klamm audit to-delta` writes, until it has the name `events`."""
_LOG_VERSION: Final = "v1"
_NEW_LOG: Final = f"{COMMIT_LOG}.new"
_OLD_LOG: Final = f"{COMMIT_LOG}.old"
_LOGS: Final = {"parquet": COMMIT_LOG, "delta": "_delta_log"}


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake below `root`; `sink` is `parquet` or `delta`."""

    root: AnyPath
    sink: str

    @staticmethod
    def of(settings: SparkSettings, spark: SparkSession | None) -> Lake:
        """The lake that the settings name. Without a session, a lake at a URI cannot be read."""
        return Lake(path_of(settings.lake, spark), settings.sink)

    @property
    def events(self) -> AnyPath:
        """The table of events."""
        return self.root / "events"

    @property
    def seals(self) -> AnyPath:
        """The table of seals."""
        return self.root / "seals"

    @property
    def forgotten(self) -> AnyPath:
        """The table of what was forgotten."""
        return self.root / "forgotten"

    @property
    def ship_checkpoint(self) -> AnyPath:
        """The checkpoint of the query that fills `events`."""
        return self.root / "checkpoints" / "ship"

    def checkpoint_problem(self) -> str | None:
        """Return what is wrong if batches of `events` are unknown to its checkpoint.

        Spark records a batch in the checkpoint before it writes it. So the checkpoint was lost, or is an old copy:
        a Parquet table ignores the batches that its log has already, even if they differ, and Delta writes them again.
        """
        path, checkpoint = self.events, self.ship_checkpoint
        if (path / _OLD_LOG).is_dir():
            return f"{path} has no commit log: klamm audit recover was interrupted"
        torn = next(chain(self._torn_in_log(path), _torn_in_checkpoint(checkpoint)), None)
        if torn is not None:
            return f"{torn} is torn, as a power cut leaves a file"
        if not self._has_log(path):
            return None
        started = last_batch(checkpoint / "offsets")
        if started is not None and (self.sink == "delta" or started >= (last_batch(path / COMMIT_LOG) or 0)):
            return None
        return f"{checkpoint} was lost or is an old copy: it does not know all batches of {path}"

    def torn_commits(self) -> list[Path]:
        """The files of the commit log of `events` that a power cut has torn: what they have committed is unknown."""
        return list(self._torn_in_log(self.events))

    def _torn_in_log(self, table: AnyPath) -> Iterator[Path]:
        log = table / _LOGS[self.sink]
        return torn_in_delta_log(log) if self.sink == "delta" else torn_in_log(log)

    def require_checkpoint(self) -> None:
        """Raises LakeError if there is a `checkpoint_problem`."""
        problem = self.checkpoint_problem()
        if problem is not None:
            raise LakeError(f"{problem}. Events would be lost or repeated: run klamm audit recover")

    def require_sink(self) -> None:
        """Raises LakeError if the lake was written by another sink, or is being moved to one."""
        if not self.events.is_dir() and (self.root / MOVED).is_dir():
            raise LakeError(f"{self.root} is being moved: klamm audit to-delta was interrupted, run it again")
        for sink, log in _LOGS.items():
            if sink != self.sink and (self.events / log).is_dir():
                raise LakeError(f"{self.events} was written by the sink {sink}, not {self.sink}")

    def require_events(self) -> None:
        """Raises LakeError if nothing was shipped here, or only with another sink, or if the commit log is torn."""
        if self.has_events():
            for path in self.torn_commits():
                raise LakeError(f"{path} is torn, as a power cut leaves a file: run klamm audit recover")
            return
        self.require_sink()
        raise LakeError(f"nothing was shipped to {self.root} yet: run klamm audit ship")

    def has_events(self) -> bool:
        """Whether a batch has been committed."""
        return self._has_log(self.events)

    def _has_log(self, table: AnyPath) -> bool:
        return any((table / _LOGS[self.sink]).glob("[0-9]*"))

    def table_id(self, spark: SparkSession) -> str:
        """The id that Delta has given to the table of events at random, when it was made; empty for Parquet."""
        if self.sink != "delta":
            return ""
        return str(spark.sql(f"DESCRIBE DETAIL delta.`{self.events}`").select("id").collect()[0]["id"])

    def read(self, spark: SparkSession) -> DataFrame:
        """The committed rows of `events` with its quarantine."""
        reader = spark.read.format(self.sink)
        if self.sink == "parquet":
            from klamm_spark.spark.schema import LAKE_SCHEMA

            # With a schema, files of earlier versions have all columns, and Spark opens no file to infer it.
            reader = reader.schema(LAKE_SCHEMA)
        return reader.load(str(self.events))

    def stream(self, spark: SparkSession) -> DataFrame:
        """A stream of the rows of `events` as they are committed."""
        reader = spark.readStream.format(self.sink)
        if self.sink == "delta":
            # `klamm audit forget` deletes rows that were read.
            reader = reader.option("skipChangeCommits", "true")
        if self.sink == "parquet":
            from klamm_spark.spark.schema import LAKE_SCHEMA

            reader = reader.schema(LAKE_SCHEMA)
        return reader.load(str(self.events))

    def read_events(self, spark: SparkSession) -> DataFrame:
        """The events, without the quarantine."""
        self.require_events()
        return self.read(spark).where("date is not null")

    def read_quarantine(self, spark: SparkSession) -> DataFrame:
        """The lines that are not events: `bad_line`, `source_file`, `shipped_time`."""
        self.require_events()
        return self.read(spark).where("date is null").select("bad_line", "source_file", "shipped_time")


def _torn_in_checkpoint(checkpoint: AnyPath) -> Iterator[Path]:
    yield from torn_in_log(checkpoint / "offsets", least_lines=3)
    yield from torn_in_log(checkpoint / "commits", least_lines=2)
    yield from torn_in_log(checkpoint / "sources" / "0")
    metadata: AnyPath = checkpoint / "metadata"
    if not isinstance(metadata, HadoopPath) and is_torn(metadata):
        yield metadata


def committed_files(table: AnyPath, without: Collection[AnyPath] = ()) -> dict[AnyPath, dict[str, Any]]:
    """The files that a Parquet table's commit log names, with their entries. Raises LakeError, OSError.

    Files of the log that are left out, `without`, must be torn: LakeError, if such a one sums up files that are gone.
    """
    files: dict[AnyPath, dict[str, Any]] = {}
    for log in _valid_logs(table / COMMIT_LOG, without):
        for entry in read_log(log):
            files[path_from_uri(entry["path"], table)] = entry
    return files


def orphan_files(table: AnyPath) -> list[AnyPath]:
    """Parquet files that the commit log does not name: left by killed drivers, or not committed yet."""
    found = [path for path in table.rglob("*.parquet") if COMMIT_LOG not in path.parts]
    committed = committed_files(table)
    return sorted(path for path in found if path.resolve() not in committed)


def delta_orphan_files(
    table: AnyPath, snapshot: Callable[[], Iterable[str]], commits: Callable[[AnyPath], Iterable[str]]
) -> list[AnyPath]:
    """Data files of a Delta table that neither the latest snapshot nor any commit names.

    `snapshot` returns the URIs of the latest snapshot's files, `commits` the lines of the log's commits. A file that a
    commit has removed is not an orphan: older snapshots name it, and VACUUM deletes it.
    """
    log = table / _LOGS["delta"]
    found = [path for path in table.rglob("*.parquet") if log.name not in path.parts]
    known = {path_from_uri(uri, table) for uri in snapshot()}
    unknown = [path for path in found if path.resolve() not in known]
    if unknown:
        for line in commits(log):
            action = json.loads(line)
            file = action.get("add") or action.get("remove")
            if file is not None:
                known.add(path_from_uri(file["path"], table))
    return sorted(path for path in unknown if path.resolve() not in known)


def delta_commits(spark: SparkSession, log: AnyPath) -> Iterator[str]:
    """The lines of a Delta log's commits."""
    if isinstance(log, HadoopPath):
        # Spark reads many files at once.
        yield from (row["value"] for row in spark.read.text(f"{log}/*.json").toLocalIterator())
        return
    for commit in log.glob("*.json"):
        yield from commit.read_text(encoding="utf-8").splitlines()


def last_batch(log: AnyPath) -> int | None:
    """The number of the last batch in a log of Spark; None if there is none."""
    return max((int(path.stem) for path in log.glob("[0-9]*") if path.stem.isdigit()), default=None)


def _valid_logs(folder: AnyPath, without: Collection[AnyPath] = ()) -> Iterator[AnyPath]:
    batches = log_files(folder)
    whole = {number: path for number, path in batches.items() if path not in without}
    start = max((number for number, path in whole.items() if path.suffix), default=0)
    for path in without:
        if path.suffix and not batches.keys() >= set(range(start, int(path.stem))):
            raise LakeError(
                f"{path} is torn, and files of the log before it are gone: only a copy of it can replace it"
            )
    yield from (whole[number] for number in sorted(whole) if number >= start)


def read_log(path: AnyPath) -> list[dict[str, Any]]:
    """The entries of one file of a commit log or of a file source's log. Raises LakeError if its format is unknown."""
    version, *lines = path.read_text(encoding="utf-8").splitlines()
    check_log_version(path, version)
    return [json.loads(line) for line in lines if line]


def check_log_version(path: AnyPath, version: str) -> None:
    """Raises LakeError if the first line of a log is of a format that this klamm does not know."""
    if version != _LOG_VERSION:
        raise LakeError(f'{path} has the format "{version}"; this klamm knows "{_LOG_VERSION}"')


def write_log(path: AnyPath, entries: Iterable[dict[str, Any]]) -> None:
    """Replace a file of a commit log atomically and durably."""
    replace_durably(path, "\n".join([_LOG_VERSION, *(json.dumps(entry, separators=(",", ":")) for entry in entries)]))


def renumber_log(table: AnyPath, last: int, without: Collection[AnyPath] = ()) -> None:
    """Replace a Parquet table's commit log: all its entries become batch 0, and the log ends with the batch `last`.

    For `without` see `committed_files`, also for what is raised.
    """
    log, new, old = (table / name for name in (COMMIT_LOG, _NEW_LOG, _OLD_LOG))
    if new.is_dir():
        remove_tree(new)
    new.mkdir(parents=True, exist_ok=True)
    write_log(new / "0", committed_files(table, without).values())
    for batch in range(1, last + 1):
        write_log(new / str(batch), ())
    move_file(log, table, old.name)
    move_file(new, table, log.name)
    remove_tree(old)


def restore_log(table: AnyPath) -> None:
    """Undo or end a `renumber_log` that was killed."""
    log, old = table / COMMIT_LOG, table / _OLD_LOG
    if not log.is_dir() and old.is_dir():
        move_file(old, table, log.name)
    for leftover in (table / _NEW_LOG, old):
        if leftover.is_dir():
            remove_tree(leftover)
