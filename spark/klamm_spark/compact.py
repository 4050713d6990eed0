"""`klamm audit compact`: merges many small files of the lake into few large ones, while readers and `ship` run on.

Delta compacts its tables itself. Of a Parquet table, the files that the newest `.compact` file of the commit log names
are merged: one rename replaces that file with an edited copy, and readers of the log then find the large files instead
of the small ones. Files that a table of aggregates has not read are left alone; with `aggregates = false` they are
merged with each other, and the tables read the merged files later. If `ship` writes a new `.compact` file at the same
moment, the large files become orphans, and nothing is lost.

The small files are kept for `keep_hours` for readers that have started; they are deleted, as orphans are. An orphan
may be a file that is about to be committed: none is deleted within `MIN_KEEP_HOURS`.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.filesystems import AnyPath, HadoopPath, move_file, path_from_uri, remove_tree
from klamm_spark.lake import (
    COMPACTED,
    MIN_KEEP_HOURS,
    Lake,
    LakeError,
    committed_files,
    consumed_files,
    last_batch,
    last_compact_log,
    orphan_files,
    read_log,
    write_log,
)
from klamm_spark.spark_settings import Pipeline
from klamm_spark.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES: Final = 128 * 1024 * 1024
DELTA_MIN_KEEP_HOURS: Final = 168
_ONE_DELTA_WRITER: Final = frozenset({"s3", "s3a", "s3n"})


def run(
    spark: SparkSession, pipeline: Pipeline, *, keep_hours: float, say: Callable[[str], None], alone: bool = False
) -> int:
    """Compact `events` and the tables; the exit code. `alone` says that `ship` does not run.

    Raises LakeError, and FileSystemError if the store fails or cannot replace files.
    """
    if not keep_hours >= MIN_KEEP_HOURS:
        raise LakeError(f"--keep-hours must be at least {MIN_KEEP_HOURS}: younger files may be about to be committed")
    settings = pipeline.settings
    lake = Lake.of(settings, spark)
    lake.require_events()
    tables = [lake.events, *(lake.table(spec.name) for spec in TABLES if lake.has_table(spec.name))]
    if lake.sink == "delta":
        if not alone:
            require_one_writer(spark, lake)
        kept = max(keep_hours, DELTA_MIN_KEEP_HOURS)
        for table in tables:
            compact_delta(spark, lake, table, kept, say)
        return 0
    for table in tables:
        if table == lake.events:
            note = None if settings.aggregates else lake.add_compacted
            merged, written = compact_table(spark, table, partial(unread_files, lake), note)
        else:
            merged, written = compact_table(spark, table)
        deleted = delete_orphans(table, older_than_s=keep_hours * 3600, now_s=time.time())
        say(f"{table}: {merged:,} files merged into {written:,}; {deleted:,} orphans deleted")
    return 0


def compact_delta(
    spark: SparkSession, lake: Lake, table: AnyPath, kept_hours: float, say: Callable[[str], None]
) -> None:
    """Merge small files of a Delta table; delete what was replaced `kept_hours` ago, unless a query still needs it."""
    spark.sql(f"OPTIMIZE delta.`{table}`")
    behind = delta_readers_behind(lake, time.time() - kept_hours * 3600) if table == lake.events else []
    if behind:
        say(
            f"{table}: optimized, and nothing was deleted: {', '.join(behind)} did not read what came more than "
            f"{kept_hours:g} hours ago. Run klamm audit ship with aggregates, or delete these tables with checkpoints"
        )
        return
    spark.sql(f"VACUUM delta.`{table}` RETAIN {kept_hours:g} HOURS")
    say(f"{table}: optimized; replaced files are kept for {kept_hours:g} hours")


def delta_readers_behind(lake: Lake, before_s: float) -> list[str]:
    """The tables of aggregates that have not read all events that were committed before that time."""
    behind = []
    commits = {int(path.stem): path for path in (lake.events / "_delta_log").glob("*.json") if path.stem.isdigit()}
    old = [version for version in sorted(commits) if commits[version].stat().st_mtime < before_s]
    for spec in TABLES:
        checkpoint = lake.table_checkpoint(spec.name)
        if checkpoint.is_dir():
            next_version = _next_delta_version(checkpoint)
            if any(version >= next_version and _adds_rows(commits[version]) for version in old):
                behind.append(spec.name)
    return behind


def _next_delta_version(checkpoint: AnyPath) -> int:
    """The first version of a Delta table that a streaming query may not have read to its end."""
    last = last_batch(checkpoint / "commits")
    if last is None:
        return 0
    offset = json.loads((checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()[-1])
    is_read = offset["index"] >= 0 and not offset["isStartingVersion"]
    return int(offset["reservoirVersion"]) + is_read


def _adds_rows(commit: AnyPath) -> bool:
    """Whether a commit adds files with new rows, and not the merged rows of others."""
    lines = commit.read_text(encoding="utf-8").splitlines()
    return any(json.loads(line)["add"]["dataChange"] for line in lines if line.startswith('{"add"'))


def require_one_writer(spark: SparkSession, lake: Lake) -> None:
    """Raises LakeError if two drivers that commit to this Delta table may overwrite each other's commits."""
    if not isinstance(lake.root, HadoopPath) or lake.root.scheme not in _ONE_DELTA_WRITER:
        return
    key = f"spark.delta.logStore.{lake.root.scheme}.impl"
    if spark.conf.get(key, None) in (None, "io.delta.storage.S3SingleDriverLogStore"):
        raise LakeError(
            f"Delta's commits in {lake.root.scheme}:// are safe from one driver only: stop klamm audit ship "
            f"and give --alone, or set {key} to a log store for several, e.g. io.delta.storage.S3DynamoDBLogStore"
        )


def compact_table(
    spark: SparkSession,
    table: AnyPath,
    unread: Callable[[], dict[str, set[AnyPath]]] = dict,
    note: Callable[[str, list[str]], None] | None = None,
) -> tuple[int, int]:
    """Compact a Parquet table; returns how many files were merged, and into how many.

    `unread` returns the files that each reader has not read. Without `note` they are left alone. With it, they are
    merged with each other, and `note` is called with a reader and the names of the merged files that it must read.
    """
    log = last_compact_log(table)
    if log is None:
        return 0, 0
    if isinstance(log, HadoopPath):
        log.parent.require_replaceable()
    entries, before = read_log(log), unread()
    groups: dict[tuple[AnyPath, tuple[str, ...]], list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        path = path_from_uri(entry["path"], table)
        readers = _readers(path, before)
        if entry["size"] < TARGET_BYTES and (note is not None or not readers):
            groups[path.parent, readers].append(entry)
    replaced: dict[str, tuple[str, ...]] = {}
    added: list[dict[str, Any]] = []
    noted: dict[str, list[str]] = defaultdict(list)
    for (folder, readers), group in sorted(groups.items()):
        wanted = -(-sum(entry["size"] for entry in group) // TARGET_BYTES)
        if len(group) <= wanted:
            continue
        merged = _merge(spark, folder, [str(path_from_uri(entry["path"], table)) for entry in group], wanted)
        added += merged
        replaced |= dict.fromkeys((entry["path"] for entry in group), readers)
        for reader in readers:
            noted[reader] += (path_from_uri(entry["path"], table).name for entry in merged)
    after = unread()
    if any(_readers(path_from_uri(path, table), after) != readers for path, readers in replaced.items()):
        # A table began meanwhile: the next run compacts.
        return 0, 0
    for reader, names in noted.items():
        if note is not None:
            note(reader, names)
    if added:
        write_log(log, [*(entry for entry in entries if entry["path"] not in replaced), *added])
    return len(replaced), len(added)


def _readers(path: AnyPath, unread: dict[str, set[AnyPath]]) -> tuple[str, ...]:
    return tuple(sorted(reader for reader, files in unread.items() if path in files))


def _merge(spark: SparkSession, folder: AnyPath, files: list[str], wanted: int) -> list[dict[str, Any]]:
    staging = folder / ".compacting"
    rows = spark.read.option("mergeSchema", "true").parquet(*files)
    rows.repartition(wanted).write.mode("overwrite").parquet(str(staging))
    if isinstance(staging, HadoopPath) and spark.read.parquet(str(staging)).count() != rows.count():
        # Where a rename is a copy, a task that fails in it may leave too many or too few rows.
        remove_tree(staging)
        raise LakeError(f"compacting {folder} did not keep all rows; nothing was changed: try again")
    entries = []
    staged: list[AnyPath] = list(staging.glob("part-*.parquet"))
    for written in sorted(staged):
        path = move_file(written, folder, f"{COMPACTED}{written.name.removeprefix('part-')}")
        status = path.stat()
        entries.append(
            {
                "path": path.as_uri(),
                "size": status.st_size,
                "isDir": False,
                "modificationTime": int(status.st_mtime * 1000),
                "blockReplication": 1,
                "blockSize": 32 * 1024 * 1024,
                "action": "add",
            }
        )
    remove_tree(staging)
    return entries


def delete_orphans(table: AnyPath, *, older_than_s: float, now_s: float) -> int:
    """Delete files that the commit log does not name and that are older than `older_than_s`; returns how many."""
    old = [path for path in orphan_files(table) if now_s - path.stat().st_mtime > older_than_s]
    # Read again: files that were committed since the first listing must stay.
    committed = committed_files(table)
    deleted = [path for path in old if path not in committed]
    for path in deleted:
        if not isinstance(path, HadoopPath):
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return len(deleted)


def unread_files(lake: Lake) -> dict[str, set[AnyPath]]:
    """Files of `events` that a table of aggregates has not read, by the table's name."""
    files = set(committed_files(lake.events))
    unread: dict[str, set[AnyPath]] = {}
    for spec in TABLES:
        checkpoint = lake.table_checkpoint(spec.name)
        if checkpoint.is_dir():
            to_read = lake.compacted_to_read(spec.name)
            unread[spec.name] = {
                path
                for path in files - consumed_files(checkpoint, lake.events)
                if not path.name.startswith(COMPACTED) or path.name in to_read
            }
    return unread
