"""The files of the lake's table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.storage.filesystems import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from klamm_spark.lake.layout import Lake


class Committed(NamedTuple):
    """The statistics of a file in its commit: the number of rows, and by column its bounds and its number of nulls."""

    rows: int | None = None
    lowest: Mapping[str, Any] = {}
    highest: Mapping[str, Any] = {}
    nulls: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table, and the hour that its rows are of; of the quarantine there is none."""

    path: str
    hour_us: int | None
    committed: Committed = field(default=Committed(), compare=False)


def files_of(lake: Lake, *, before_us: int | None = None) -> list[TableFile]:
    """The files that the newest commit names, by their paths; only those that were added before a time. Raises
    LakeError."""
    import pyarrow as pa

    found = []
    for action in pa.table(lake.table().get_add_actions(flatten=True)).to_pylist():
        if before_us is not None and action["modification_time"] * 1000 >= before_us:
            continue
        date, hour = action["partition.date"], action["partition.hour"]
        days = None if date is None else pa.scalar(date, pa.date32()).cast(pa.int32()).as_py()
        hour_us = None if days is None or hour is None else (days * 24 + hour) * 3_600_000_000
        found.append(TableFile(str(lake.events / action["path"]), hour_us, _committed(action)))
    return sorted(found, key=lambda file: file.path)


def _committed(action: Mapping[str, Any]) -> Committed:
    given = {name: value for name, value in action.items() if value is not None}
    lowest, highest, nulls = (
        {name.removeprefix(kind): value for name, value in given.items() if name.startswith(kind)}
        for kind in ("min.", "max.", "null_count.")
    )
    return Committed(given.get("num_records"), lowest, highest, nulls)


def hidden_by(lake: Lake) -> Iterator[str]:
    """A sentence for each feature of the table by which its readers see other rows or columns than its files have."""
    table = lake.table()
    protocol, properties = table.protocol(), table.metadata().configuration
    if protocol.min_reader_version > 1 or properties.get("delta.columnMapping.mode", "none") != "none":
        features = ", ".join(protocol.reader_features or ()) or "column mapping"
        yield f"{lake.events} has features that ship does not give it, and readers may see other rows: {features}"


def read_columns(files: Sequence[TableFile], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read columns of all rows of files; of those of an earlier klamm what they have. Raises LakeError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in files:
        try:
            with pq.ParquetFile(source_of(file)) as parquet:
                there = [name for name in columns if name in parquet.schema_arrow.names]
                yield from parquet.iter_batches(columns=there)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise LakeError(f"{file.path} cannot be read: {' '.join(str(error).split())}") from error


def source_of(file: TableFile) -> Any:
    """Open a file for PyArrow. Raises OSError."""
    import pyarrow as pa

    path = path_of(file.path)
    return path if isinstance(path, Path) else pa.BufferReader(path.read_bytes())
