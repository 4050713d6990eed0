"""`klamm audit compact`: many small files of the lake → few large ones, while others read and `ship` runs on.

Delta does it itself. Of a Parquet table those files are taken that the newest `.compact` file of the commit log names:
one rename puts an edited copy in its place, and from then on all who follow the log see the large files instead of the
small ones. Files that a table of aggregates has not read yet are left alone. A shipper that sums up its log at the same
moment may undo it: then the large files are orphans, and nothing is lost.

The small files stay for `keep_hours`, for those who still read them; after that, and so do orphans, they are deleted.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.lake import (
    Lake,
    committed_files,
    consumed_files,
    last_compact_log,
    local_path,
    orphan_files,
    read_log,
    write_log,
)
from klamm_spark.spark_settings import Pipeline
from klamm_spark.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES: Final = 128 * 1024 * 1024
_PREFIX: Final = "compacted-"


def run(spark: SparkSession, pipeline: Pipeline, *, keep_hours: float, say: Callable[[str], None]) -> int:
    """Compact `events` and the tables; the exit code. Raises LakeError."""
    settings = pipeline.settings
    lake = Lake(settings.lake.resolve(), settings.sink)
    lake.require_events()
    tables = [lake.events, *(lake.table(spec.name) for spec in TABLES if lake.has_table(spec.name))]
    if lake.sink == "delta":
        for table in tables:
            spark.sql(f"OPTIMIZE delta.`{table}`")
            spark.sql(f"VACUUM delta.`{table}` RETAIN {max(keep_hours, 168):g} HOURS")
            say(f"{table}: optimized")
        return 0
    for table in tables:
        merged, written = compact_table(spark, table, _unread(lake) if table == lake.events else set())
        deleted = delete_orphans(table, older_than_s=keep_hours * 3600, now_s=time.time())
        say(f"{table}: {merged:,} files are now {written:,}; {deleted:,} that no commit log names deleted")
    return 0


def compact_table(spark: SparkSession, table: Path, unread: set[Path]) -> tuple[int, int]:
    """Compact a Parquet table; how many files were merged into how many. Files in `unread` are left alone."""
    log = last_compact_log(table)
    if log is None:
        return 0, 0
    entries = read_log(log)
    groups: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        path = local_path(entry["path"])
        if entry["size"] < TARGET_BYTES and path not in unread:
            groups[path.parent].append(entry)
    replaced: dict[str, None] = {}
    added: list[dict[str, Any]] = []
    for folder, group in sorted(groups.items()):
        wanted = -(-sum(entry["size"] for entry in group) // TARGET_BYTES)
        if len(group) <= wanted:
            continue
        added += _merge(spark, folder, [str(local_path(entry["path"])) for entry in group], wanted)
        replaced |= dict.fromkeys(entry["path"] for entry in group)
    if added:
        write_log(log, [*(entry for entry in entries if entry["path"] not in replaced), *added])
    return len(replaced), len(added)


def _merge(spark: SparkSession, folder: Path, files: list[str], wanted: int) -> list[dict[str, Any]]:
    staging = folder / ".compacting"
    rows = spark.read.option("mergeSchema", "true").parquet(*files)
    rows.repartition(wanted).write.mode("overwrite").parquet(str(staging))
    entries = []
    for written in sorted(staging.glob("part-*.parquet")):
        path = written.rename(folder / f"{_PREFIX}{written.name.removeprefix('part-')}")
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
    for left in staging.iterdir():
        left.unlink()
    staging.rmdir()
    return entries


def delete_orphans(table: Path, *, older_than_s: float, now_s: float) -> int:
    """Delete files that the commit log does not name and that are old enough to be nobody's; how many there were."""
    old = [path for path in orphan_files(table) if now_s - path.stat().st_mtime > older_than_s]
    # What a shipper has committed since the log was read first must stay.
    committed = committed_files(table)
    deleted = [path for path in old if path not in committed]
    for path in deleted:
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return len(deleted)


def _unread(lake: Lake) -> set[Path]:
    """Files of `events` that some table of aggregates has still to read."""
    files = set(committed_files(lake.events))
    unread: set[Path] = set()
    for spec in TABLES:
        checkpoint = lake.table_checkpoint(spec.name)
        if checkpoint.is_dir():
            unread |= files - consumed_files(checkpoint)
    return unread
