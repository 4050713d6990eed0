"""`spark.read.format("klamm_audit")`: the spool itself as a table, for notebooks.

    spark.read.format("klamm_audit").option("live", "false").load("/var/lib/klamm/audit")

PySpark finds the format by the package `pyspark_klamm_audit`. The option `path` is the folder of the spool. If `live`
is `true`, the default, segments that are still being written are read too. Another option is an error. A line that is
not an event has null columns, and its text is in `bad_line`.

Spark calls `partitions` in the driver and `read` in its workers. Spark itself applies all filters: the source takes
none, because Spark 4.2 gives all scans of a DataFrame the filters that one of them has pushed down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from klamm_spark.spool.event_lines import EVENT, EventLines
from klamm_spark.spool.layout import node_folders
from klamm_spark.spool.reader import read_segment, segments_of
from klamm_spark.storage.filesystems import parse_location

NAME: Final = "klamm_audit"
_OPTIONS: Final = ("path", "live")
_BATCH_BYTES: Final = 8 * 1024 * 1024
_COLUMNS: Final = pa.schema([*EVENT, pa.field("time", pa.timestamp("us", "UTC")), pa.field("bad_line", pa.string())])


class AuditDataSource(DataSource):
    """The format `klamm_audit`."""

    def __init__(self, options: dict[str, str]) -> None:
        """Check the options. Raises ValueError for an unknown one."""
        super().__init__(options)
        # Spark's options have no case.
        unknown = {name.lower() for name in options} - {name.lower() for name in _OPTIONS}
        if unknown:
            raise ValueError(f"klamm_audit has no option {', '.join(sorted(unknown))}, only {', '.join(_OPTIONS)}")

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the event's columns, `time` and `bad_line`."""
        return from_arrow_schema(_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for `spark.read`."""
        return _Reader(_folder(self.options), live=_flag(self.options, "live"))


class _Segment(InputPartition):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class _Reader(DataSourceReader):
    def __init__(self, spool: Path, *, live: bool) -> None:
        self._spool = spool
        self._live = live

    def partitions(self) -> Sequence[InputPartition]:
        folders = [Path(str(folder)) for folder in node_folders(self._spool)]
        return [_Segment(str(path)) for folder in folders for path in segments_of(folder, live=self._live).values()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without partitions, Spark passes one of its own.
        if isinstance(partition, _Segment):
            yield from read_batches(Path(partition.path))


def read_batches(segment: Path) -> Iterator[pa.RecordBatch]:
    """Yield the events of a segment. Raises OSError, ValueError."""
    data, event_lines = read_segment(segment), EventLines()
    at = 0
    while at < len(data):
        end = data.find(b"\n", min(at + _BATCH_BYTES, len(data)) - 1)
        end = len(data) if end < 0 else end + 1
        rows = event_lines.rows_of(data[at:end])
        rows = rows.append_column("time", rows.column("time_us").cast(_COLUMNS.field("time").type))
        yield from rows.select(_COLUMNS.names).combine_chunks().to_batches()
        at = end


def _folder(options: Any) -> Path:
    path = options.get("path")
    if not path:
        raise ValueError('the format klamm_audit needs the spool: .load("/path/of/the/spool")')
    folder = parse_location(path, Path())
    if not isinstance(folder, Path):
        raise ValueError(f"the format klamm_audit reads a folder, not {folder}: Spark's format text reads a URI")
    return folder


def _flag(options: Any, name: str) -> bool:
    text = str(options.get(name, "true")).lower()
    if text not in ("true", "false"):
        raise ValueError(f'the option {name} takes true or false, not "{text}"')
    return text == "true"
