"""`spark.read.format("klamm_audit")` and `spark.readStream`: the spool itself as a table, for notebooks.

    spark.readStream.format("klamm_audit").option("live", "true").load("/var/lib/klamm/audit")

PySpark finds the format by the package `pyspark_klamm_audit`. Options: `path`, the folder of the spool; `live`, whether
segments that are still being written are read too (default `true`); `maxBytesPerTrigger`, the most bytes in a
micro-batch (default 64 MiB); `failOnDataLoss` (default `true`), whether a stream fails if retention has deleted what it
has not read. Another option is an error. A line that is not an event has null columns, and its text is in `bad_line`;
it has no time. A third as fast as Spark's own file source, which `klamm audit ship` uses.

Filters stay with Spark: Spark 4.2 gives all scans of a DataFrame the filters that one of them has pushed down.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from klamm_spark.events.event import ACTIONS, FIELDS, SCHEMA_VERSION
from klamm_spark.spark.schema import EVENT_SCHEMA
from klamm_spark.spool.offsets import DataLossError, Offset, Piece, SpoolFollower, earlier
from klamm_spark.storage.filesystems import parse_location

NAME: Final = "klamm_audit"
_OPTIONS: Final = ("path", "live", "maxBytesPerTrigger", "failOnDataLoss")
_BATCH_BYTES: Final = 8 * 1024 * 1024
_DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
_ROW: Final = StructType(
    [*EVENT_SCHEMA.fields, StructField("time", TimestampType()), StructField("bad_line", StringType())]
)


class AuditDataSource(DataSource):
    """The format `klamm_audit`."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises ValueError for an option that it does not have."""
        super().__init__(options)
        # Spark's options have no case.
        unknown = {name.lower() for name in options} - {name.lower() for name in _OPTIONS}
        if unknown:
            raise ValueError(f"klamm_audit has no option {', '.join(sorted(unknown))}, only {', '.join(_OPTIONS)}")

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The event's columns, `time` and `bad_line`."""
        return _ROW

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return _Reader(_follower(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        max_bytes = int(self.options.get("maxBytesPerTrigger", str(_DEFAULT_MAX_BYTES)))
        lossless = _flag(self.options, "failOnDataLoss")
        return _StreamReader(_follower(self.options), max_bytes, lossless)


class _Piece(InputPartition):
    def __init__(self, piece: Piece) -> None:
        super().__init__(tuple(piece))
        self.piece = piece


class _Reader(DataSourceReader):
    def __init__(self, follower: SpoolFollower) -> None:
        self._follower = follower

    def partitions(self) -> Sequence[InputPartition]:
        return [_Piece(piece) for piece in self._follower.pieces({}, self._follower.latest({}))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there are no partitions, Spark has one of its own.
        if isinstance(partition, _Piece):
            yield from read_batches(self._follower, partition.piece)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, follower: SpoolFollower, max_bytes: int, fail_on_data_loss: bool) -> None:
        self._follower = follower
        self._max_bytes = max_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self._available_now: Offset | None = None

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._max_bytes)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        end = self._follower.latest(start, None if isinstance(limit, ReadAllAvailable) else self._max_bytes)
        return end if self._available_now is None else earlier(end, self._available_now)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = self._follower.latest({})

    def reportLatestOffset(self) -> Offset:
        return self._follower.latest({})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        try:
            pieces = self._follower.pieces(start, end)
        except DataLossError:
            if self._fail_on_data_loss:
                raise
            left = {node: position for node, position in start.items() if self._follower.holds(node, position)}
            pieces = self._follower.pieces(left, end)
        return [_Piece(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, _Piece):
            yield from read_batches(self._follower, partition.piece)


def read_batches(follower: SpoolFollower, piece: Piece) -> Iterator[pa.RecordBatch]:
    """The events of a piece. Raises DataLossError."""
    data = follower.read(piece)
    at = 0
    while at < len(data):
        end = data.find(b"\n", min(at + _BATCH_BYTES, len(data)) - 1)
        end = len(data) if end < 0 else end + 1
        yield from batches_of(data[at:end])
        at = end


def batches_of(lines: bytes) -> Iterator[pa.RecordBatch]:
    """Parse whole lines into batches with the columns of `AuditDataSource.schema`."""
    table = _parsed(lines)
    if table is not None:
        table = table.append_column("time", table.column("time_us").cast(_COLUMNS.field("time").type))
        table = table.append_column("bad_line", pa.nulls(len(table), pa.string()))
        yield from table.select(_COLUMNS.names).combine_chunks().to_batches()
        return
    end = lines.find(b"\n", len(lines) // 2) + 1
    if end in (0, len(lines)):
        end = lines.rfind(b"\n", 0, len(lines) - 1) + 1
    if end:
        # Halve the lines until each bad line is alone.
        yield from batches_of(lines[:end])
        yield from batches_of(lines[end:])
        return
    bad = {"bad_line": lines.removesuffix(b"\n").decode("utf-8", "replace")}
    yield pa.RecordBatch.from_pylist([bad], schema=_COLUMNS)


def _parsed(lines: bytes) -> pa.Table | None:
    """Parse all lines at once with Arrow; None if one of them is not an event."""
    options = pyarrow.json.ParseOptions(explicit_schema=_EVENT, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(block_size=len(lines) + 1, use_threads=False)
    try:
        table = pyarrow.json.read_json(io.BytesIO(lines), read_options=read, parse_options=options)
    except pa.ArrowInvalid:
        return None
    required = (table.column(field.name).null_count == 0 for field in FIELDS if field.required)
    whole = len(table) == lines.count(b"\n") and all(required)
    if not whole or pc.max(table.column("schema_version")).as_py() > SCHEMA_VERSION:
        return None
    return table if pc.all(pc.is_in(table.column("kind"), pa.array(list(ACTIONS)))).as_py() else None


_EVENT: Final = to_arrow_schema(EVENT_SCHEMA)
_COLUMNS: Final = to_arrow_schema(_ROW, timezone="UTC")


def _follower(options: Any) -> SpoolFollower:
    path = options.get("path")
    if not path:
        raise ValueError('the format klamm_audit needs the spool: .load("/path/of/the/spool")')
    folder = parse_location(path, Path())
    if not isinstance(folder, Path):
        raise ValueError(f"the format klamm_audit reads a folder, not {folder}: Spark's format text reads a URI")
    return SpoolFollower(folder, _flag(options, "live"))


def _flag(options: Any, name: str) -> bool:
    text = str(options.get(name, "true")).lower()
    if text not in ("true", "false"):
        raise ValueError(f'the option {name} takes true or false, not "{text}"')
    return text == "true"
