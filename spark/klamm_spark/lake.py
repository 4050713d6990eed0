"""Where things lie in the lake, and what of them counts.

```
LAKE/
    events/                      every event once; partitioned by date=…/hour=…
        _spark_metadata/         Parquet: the commit log. A file that it does not name does not count
        _delta_log/              Delta: the same
        date=2026-01-01/hour=7/part-….parquet
        date=__HIVE_DEFAULT_PARTITION__/…    the quarantine: lines that are no events, in `bad_line`
    tables/NAME/                 streaming aggregates, with commit logs of their own
    checkpoints/ship/            what has been shipped; belongs to `events` as a key to its lock
    checkpoints/tables/NAME/
    checkpoints/compacted/NAME   names of compacted files that hold what the table has not read
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMIT_LOG: Final = "_spark_metadata"
COMPACTED: Final = "compacted-"
"""How the names of files begin that compaction wrote."""
PARTITIONS: Final = ("date", "hour")
NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_LOG_VERSION: Final = "v1"
_LOGS: Final = {"parquet": COMMIT_LOG, "delta": "_delta_log"}


class LakeError(Exception):
    """The lake is not as it must be; the message says how."""


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake at a path; `sink` is `parquet` or `delta`."""

    root: Path
    sink: str

    @property
    def events(self) -> Path:
        """The table of events."""
        return self.root / "events"

    @property
    def ship_checkpoint(self) -> Path:
        """Of the query that fills `events`."""
        return self.root / "checkpoints" / "ship"

    def table(self, name: str) -> Path:
        """A table of aggregates."""
        return self.root / "tables" / name

    def table_checkpoint(self, name: str) -> Path:
        """Of the query that fills it."""
        return self.root / "checkpoints" / "tables" / name

    def compacted_to_read(self, name: str) -> set[str]:
        """Names of compacted files that hold what a table had not read when they were written, or when it began."""
        try:
            return set(self._compacted(name).read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return set()

    def add_compacted(self, name: str, files: Iterable[str]) -> None:
        """Note files that a table is to read although compaction wrote them."""
        path = self._compacted(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_durably(path, "\n".join(sorted(self.compacted_to_read(name).union(files))))

    def _compacted(self, name: str) -> Path:
        return self.root / "checkpoints" / "compacted" / name

    def begin_table(self, name: str) -> None:
        """Before a table's first run: from now on, compaction leaves alone what it has not read."""
        checkpoint = self.table_checkpoint(name)
        if self.sink == "parquet" and not (checkpoint / "metadata").exists():
            checkpoint.mkdir(parents=True, exist_ok=True)
            self.add_compacted(
                name, (path.name for path in committed_files(self.events) if path.name.startswith(COMPACTED))
            )

    def require_events(self) -> None:
        """Raises LakeError if nothing was shipped here, or by another sink."""
        if self.has_events():
            return
        for sink, log in _LOGS.items():
            if (self.events / log).is_dir():
                raise LakeError(f"{self.events} was written by the sink {sink}, not {self.sink}")
        raise LakeError(f"nothing was shipped to {self.root} yet: run klamm audit ship")

    def has_events(self) -> bool:
        """Whether a batch has been committed."""
        return self._has_log(self.events)

    def has_table(self, name: str) -> bool:
        """Whether a table of aggregates has been written."""
        return self._has_log(self.table(name))

    def _has_log(self, table: Path) -> bool:
        return any((table / _LOGS[self.sink]).glob("[0-9]*"))

    def read(self, spark: SparkSession, table: Path | None = None) -> DataFrame:
        """A table as it is committed, by default `events` with its quarantine; Spark follows the commit log."""
        reader = spark.read.format(self.sink)
        if table is None and self.sink == "parquet":
            from klamm_spark.spark_schema import LAKE_SCHEMA

            # Said, so that files of earlier versions have all columns, and none need be opened to know.
            reader = reader.schema(LAKE_SCHEMA)
        return reader.load(str(table or self.events))

    def stream(self, spark: SparkSession, compacted: Iterable[str] = ()) -> DataFrame:
        """Rows of `events` as they are committed. Files that compaction wrote hold nothing new and are left out, but
        for those that are named."""
        reader = spark.readStream.format(self.sink)
        if self.sink == "parquet":
            from klamm_spark.spark_schema import LAKE_SCHEMA

            reader = reader.schema(LAKE_SCHEMA).option(
                "pathGlobFilter", f"{{{','.join(['part-*', *sorted(compacted)])}}}"
            )
        return reader.load(str(self.events))

    def read_events(self, spark: SparkSession) -> DataFrame:
        """The events, without the quarantine."""
        self.require_events()
        return self.read(spark).where("date is not null")

    def read_quarantine(self, spark: SparkSession) -> DataFrame:
        """The lines that are no events: `bad_line`, `source_file`, `shipped_time`."""
        self.require_events()
        return self.read(spark).where("date is null").select("bad_line", "source_file", "shipped_time")


def committed_files(table: Path) -> dict[Path, dict[str, Any]]:
    """The files that a Parquet table's commit log names, with their entries in it. Raises LakeError, OSError."""
    files: dict[Path, dict[str, Any]] = {}
    for log in _valid_logs(table / COMMIT_LOG):
        for entry in read_log(log):
            files[local_path(entry["path"])] = entry
    return files


def orphan_files(table: Path) -> list[Path]:
    """Parquet files beside the commit log: left by drivers that were killed, or not committed yet."""
    found = [path for path in table.rglob("*.parquet") if COMMIT_LOG not in path.parts]
    committed = committed_files(table)
    return sorted(path for path in found if path.resolve() not in committed)


def delta_orphan_files(table: Path, snapshot: Callable[[], Iterable[str]]) -> list[Path]:
    """Data files of a Delta table that neither `snapshot`, URIs of the latest one's files, nor its log has a word of.

    What a commit has removed is no orphan: older snapshots have it, and VACUUM deletes it.
    """
    log = table / _LOGS["delta"]
    found = [path for path in table.rglob("*.parquet") if log not in path.parents]
    known = {local_path(uri) for uri in snapshot()}
    for commit in log.glob("*.json"):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            file = action.get("add") or action.get("remove")
            if file is not None:
                known.add((table / local_path(file["path"])).resolve())
    return sorted(path for path in found if path.resolve() not in known)


def last_compact_log(table: Path) -> Path | None:
    """The file of the commit log that sums up all before it, if there is one yet."""
    numbered = [path for path in (table / COMMIT_LOG).glob("*.compact") if path.stem.isdigit()]
    return max(numbered, key=lambda path: int(path.stem), default=None)


def _valid_logs(folder: Path) -> Iterator[Path]:
    batches: dict[int, Path] = {}
    for path in folder.iterdir():
        number, _, suffix = path.name.partition(".")
        if number.isdigit() and suffix in ("", "compact"):
            batches[int(number)] = path
    start = max((number for number, path in batches.items() if path.suffix), default=0)
    yield from (batches[number] for number in sorted(batches) if number >= start)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of one file of a commit log or of a file source's log. Raises LakeError if its format is unknown."""
    version, *lines = path.read_text(encoding="utf-8").splitlines()
    if version != _LOG_VERSION:
        raise LakeError(f'{path} has the format "{version}"; this klamm knows "{_LOG_VERSION}"')
    return [json.loads(line) for line in lines if line]


def write_log(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    """Put a file of a commit log in place of what is there, at once and durably."""
    _write_durably(path, "\n".join([_LOG_VERSION, *(json.dumps(entry, separators=(",", ":")) for entry in entries)]))


def _write_durably(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.klamm")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    # Hadoop's checksum of the old content would condemn the new one.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def consumed_files(checkpoint: Path) -> set[Path]:
    """The files that a streaming query with a file source has taken up, by its checkpoint."""
    folder = checkpoint / "sources" / "0"
    if not folder.is_dir():
        return set()
    return {local_path(entry["path"]) for log in _valid_logs(folder) for entry in read_log(log)}


def local_path(uri: str) -> Path:
    """The path of a `file:` URI as Hadoop writes it, with what it escapes."""
    return Path(unquote(urlsplit(uri).path))
