"""The task of `ship` that writes segments to files of the lake's table. No commit names these files yet.

It runs on Spark's executors, or on threads of the process that ships.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from klamm_spark.lake.layout import PARTITIONS
from klamm_spark.lake.segment import Segment, read_sealed
from klamm_spark.spool.compression import LineReader
from klamm_spark.spool.event_lines import ROW, EventLines
from klamm_spark.spool.numbers import MOST_HOURS, hours_of
from klamm_spark.storage.filesystems import AnyPath, path_of

TIME: Final = pa.timestamp("us", "UTC")
FILE: Final = pa.schema(
    [*ROW, pa.field("source_file", pa.string()), pa.field("shipped_time", TIME), pa.field("time", TIME)]
)
"""The columns of a file. `time` is `time_us` as a timestamp."""
TABLE: Final = pa.schema([*FILE, pa.field("date", pa.date32()), pa.field("hour", pa.int32())])
"""The columns of the table. `date` and `hour` are not in the files, but in the names of folders."""
NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
ENCODINGS: Final = {
    **dict.fromkeys(
        ("seq", "time_us", "time", "correlation_id", "request_bytes", "response_bytes"), "DELTA_BINARY_PACKED"
    ),
    "event_id": "DELTA_BYTE_ARRAY",
}
PLAIN: Final = ("local_time_ms", "send_time_ms", "total_time_ms", "total_time_max_ms")
"""Columns without a dictionary, which would only take time, because nearly every event has another value.

The same is true for the columns of `ENCODINGS`. Spark cannot read BYTE_STREAM_SPLIT.
"""
_ROWS_AT_ONCE: Final = 100_000
_BYTES_AT_ONCE: Final = 128 * 1024**2
"""The maximum bytes in memory, and of a group of rows. An event may name many resources, and readers have limits."""
_MOST_ROWS: Final = 4_000_000
"""The maximum number of rows in a file, because `verify` limits the memory for each file."""
_MOST_OPEN: Final = 64
"""The maximum number of open files. A process may have 1,024, and the batch of a quiet server may span thousands of
hours.
"""


class DataFile(NamedTuple):
    """A file of the table: its path within the table, and the values for its commit."""

    path: str
    date: str | None
    hour: str | None
    size_bytes: int
    stats: str


class Written(NamedTuple):
    """The result of a task: its files, and the numbers of lines.

    `lines` has the digests of the lines of each segment that fits its seal, one after the other. `failures` has the
    reason for each other segment.
    """

    files: list[DataFile]
    lines: dict[str, str]
    failures: dict[str, OSError | ValueError]
    events: int
    bad_lines: int
    newer_lines: int


class Part(NamedTuple):
    """The work of a task: the segments, their table, and the time at which they are shipped."""

    segments: Sequence[Segment]
    table: str
    shipped_us: int


def write_part(part: Part) -> Written:
    """Write the segments that fit their seals. Raises OSError."""
    reader, event_lines, files = LineReader(), EventLines(), _Files(path_of(part.table), part.shipped_us)
    lines: dict[str, str] = {}
    failures: dict[str, OSError | ValueError] = {}
    counts = [0, 0, 0]
    for segment in part.segments:
        try:
            data, digests = read_sealed(segment, reader)
        except (OSError, ValueError) as error:
            failures[segment.seal.segment] = error
            continue
        rows = event_lines.rows_of(data)
        hours = pc.count_distinct(pc.floor_temporal(rows.column("time_us").cast(TIME), unit="hour")).as_py()
        if hours > MOST_HOURS and (hours := len(hours_of(data))) > MOST_HOURS:
            failures[segment.seal.segment] = ValueError(f"it has events of {hours:,} hours, and at most {MOST_HOURS:,}")
            continue
        bad, newer = (len(rows) - rows.column(name).null_count for name in ("bad_line", "newer_line"))
        counts = [counts[0] + len(rows) - bad, counts[1] + bad, counts[2] + newer]
        files.add(rows, path_of(segment.path).as_uri())
        lines[segment.seal.segment] = digests
    return Written(files.close(), lines, failures, *counts)


class _Files:
    """The files that a task writes: one for each hour, or more if a batch has many hours."""

    def __init__(self, table: AnyPath, shipped_us: int) -> None:
        self._table = table
        self._shipped_us = shipped_us
        self._name = _new_name()
        self._waiting: list[pa.Table] = []
        self._open: dict[tuple[str | None, str | None], tuple[str, Any, pq.ParquetWriter]] = {}
        self._rows: dict[str, int] = {}
        self._ended: list[DataFile] = []

    def add(self, rows: pa.Table, source: str) -> None:
        """Add the rows of a segment."""
        size = len(rows)
        rows = rows.append_column("source_file", pa.repeat(pa.scalar(source), size))
        rows = rows.append_column("shipped_time", pa.repeat(pa.scalar(self._shipped_us, TIME), size))
        self._waiting.append(rows.append_column("time", rows.column("time_us").cast(TIME)))
        waiting_bytes = sum(each.nbytes for each in self._waiting)
        if waiting_bytes >= _BYTES_AT_ONCE or sum(map(len, self._waiting)) >= _ROWS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        rows, self._waiting = pa.concat_tables(self._waiting), []
        hours = pc.floor_temporal(rows.column("time"), unit="hour")
        for hour in pc.unique(hours).to_pylist():
            here = pc.is_null(hours) if hour is None else pc.equal(hours, pa.scalar(hour, TIME))
            partition = (None, None) if hour is None else (hour.date().isoformat(), str(hour.hour))
            path, _, writer = self._open.get(partition) or self._begin(partition)
            found = rows.filter(here)
            for group in _groups(found):
                writer.write_table(group)
            self._rows[path] = self._rows.get(path, 0) + len(found)
            if self._rows[path] >= _MOST_ROWS:
                self._end()

    def _begin(self, partition: tuple[str | None, str | None]) -> tuple[str, Any, pq.ParquetWriter]:
        if len(self._open) >= _MOST_OPEN:
            self._end()
        names = [f"{key}={value or NO_PARTITION}" for key, value in zip(PARTITIONS, partition, strict=True)]
        path, folder = "/".join((*names, self._name)), self._table / names[0] / names[1]
        if isinstance(folder, Path):
            folder.mkdir(parents=True, exist_ok=True)
            file: Any = (folder / self._name).open("wb")
        else:
            file = (folder / self._name).open_output()
        writer = pq.ParquetWriter(
            file, FILE, compression="zstd", use_dictionary=_DICTIONARIES, column_encoding=ENCODINGS
        )
        self._open[partition] = path, file, writer
        return self._open[partition]

    def close(self) -> list[DataFile]:
        """Write the waiting rows, sync the files, and return them."""
        self._write()
        self._end()
        return self._ended

    def _end(self) -> None:
        for (date, hour), (path, file, writer) in self._open.items():
            writer.close()
            size_bytes = file.tell()
            if isinstance(self._table, Path):
                file.flush()
                os.fsync(file.fileno())
            file.close()
            stats = json.dumps({"numRecords": self._rows[path]})
            self._ended.append(DataFile(path, date, hour, size_bytes, stats))
        self._open.clear()
        # If more events of an hour come later, the hour gets another file.
        self._name = _new_name()


def _groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in groups of at most `_BYTES_AT_ONCE`, or of one row."""
    waiting = [rows]
    while waiting:
        group = waiting.pop()
        if group.nbytes > _BYTES_AT_ONCE and len(group) > 1:
            half = len(group) // 2
            waiting += [group.slice(half), group.slice(0, half)]
        else:
            yield group


def _new_name() -> str:
    return f"part-{uuid.uuid4()}.parquet"


def _leaves(fields: Sequence[pa.Field], prefix: str = "") -> Iterator[str]:
    """Yield the columns of a file by their paths."""
    for field in fields:
        if pa.types.is_list(field.type):
            yield from _leaves(list(field.type.value_type), f"{prefix}{field.name}.list.element.")
        else:
            yield prefix + field.name


_DICTIONARIES: Final = [name for name in _leaves(list(FILE)) if name not in ENCODINGS and name not in PLAIN]
