"""The files of the lake's table, with the statistics and the faults of their commits, for commands that read a lake."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import PARTITIONS
from klamm_spark.lake.parquet import batches_of, open_parquet
from klamm_spark.storage.filesystems import open_local, path_of, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from klamm_spark.lake.layout import Lake

_PLAIN_PATH: Final = re.compile(r"[\w=-][\w=.-]*(/[\w=-][\w=.-]*)*", re.ASCII)
"""The paths that all readers decode to the same file. In a commit a path is a URI, and readers decode others
differently.
"""

_ACTIONS_AT_ONCE: Final = 1024
"""The number of rows about files that are converted together. Each has about a hundred columns, mostly empty."""


class Committed(NamedTuple):
    """The statistics of a file in its commit: the number of rows; and by column, its bounds and its number of nulls."""

    rows: int | None = None
    lowest: Mapping[str, Any] = {}
    highest: Mapping[str, Any] = {}
    nulls: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table.

    `hour_us` is the hour of its rows, None for the quarantine. `problems` are faults of its commit that may lead other
    readers to another file, or past some of its rows. `size_bytes` is the size that its commit says.
    """

    path: str
    hour_us: int | None
    committed: tuple[Committed, ...] = field(default=(), compare=False)
    problems: tuple[str, ...] = field(default=(), compare=False)
    size_bytes: int | None = field(default=None, compare=False)


def files_of(lake: Lake, *, before_us: int | None = None, table: DeltaTable | None = None) -> list[TableFile]:
    """Return the files of the newest commit, or of the commit of the open `table`, in the order of their paths.

    With `before_us`, return only files that were added before that time. Raises LakeError.
    """
    found = []
    for action in _actions(lake, table or lake.table()):
        if before_us is not None and action["modification_time"] * 1000 >= before_us:
            continue
        days, hour = action["partition.date"], action["partition.hour"]
        hour_us = None if days is None or hour is None else (days * 24 + hour) * 3_600_000_000
        path = str(lake.events / action["path"])
        found.append(TableFile(path, hour_us, (_committed(action),), tuple(_problems(action)), action["size_bytes"]))
    return sorted(found, key=lambda file: file.path)


def _actions(lake: Lake, table: DeltaTable) -> Iterator[dict[str, Any]]:
    """Yield the commits' facts about each file. Dates are days since 1970, because Python's dates end with the year
    9999.
    """
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        found = pa.table(table.get_add_actions(flatten=True))
        for name, kind in (("partition.date", pa.int32()), ("partition.hour", pa.int64())):
            at = found.schema.names.index(name)
            found = found.set_column(at, name, found.column(at).cast(kind))
        for batch in found.to_batches(max_chunksize=_ACTIONS_AT_ONCE):
            yield from batch.to_pylist()
    except (DeltaError, OSError, ValueError, ArithmeticError, pa.ArrowException) as error:
        raise LakeError(f"the commits of {lake.events} cannot be read: {' '.join(str(error).split())}") from error


def _problems(action: Mapping[str, Any]) -> Iterator[str]:
    date, hour = action["partition.date"], action["partition.hour"]
    if not _PLAIN_PATH.fullmatch(action["path"]):
        yield "its commit writes its path so that readers may open another file"
    if (date is None) != (hour is None) or not 0 <= (hour or 0) < 24:
        yield "its commit is wrong about date and hour, and a query may skip rows"
    if action["num_records"] is None:
        yield "its commit has no statistics that can be read, and other readers may read them"


def _committed(action: Mapping[str, Any]) -> Committed:
    given = {name: value for name, value in action.items() if value is not None}
    lowest, highest, nulls = (
        {name.removeprefix(kind): value for name, value in given.items() if name.startswith(kind)}
        for kind in ("min.", "max.", "null_count.")
    )
    return Committed(given.get("num_records"), lowest, highest, nulls)


def hidden_by(lake: Lake) -> Iterator[str]:
    """Yield a sentence for each feature of the table that shows readers other rows or columns than its files do."""
    table = lake.table()
    protocol, properties = table.protocol(), table.metadata().configuration
    if protocol.min_reader_version > 1 or properties.get("delta.columnMapping.mode", "none") != "none":
        features = ", ".join(protocol.reader_features or ()) or "column mapping"
        yield f"{lake.events} has features that ship does not give it, and readers may see other rows: {features}"
    if table.metadata().partition_columns != list(PARTITIONS):
        names = ", ".join(table.metadata().partition_columns)
        yield f"{lake.events} is partitioned by other columns, whose values readers take from the commits: {names}"


def read_columns(files: Sequence[TableFile], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read columns of all rows of some files. A file of an earlier klamm may lack columns. Raises LakeError."""
    for file in files:
        try:
            with open_file(file) as parquet:
                names = parquet.schema_arrow.names
                if len(names) > len(set(names)):
                    raise ValueError("it has a column twice")
                yield from batches_of(parquet, columns=[name for name in columns if name in names])
        except (OSError, ValueError) as error:
            raise LakeError(f"{file.path} cannot be read: {' '.join(str(error).split())}") from error


def open_file(file: TableFile) -> pq.ParquetFile:
    """Open a file for `batches_of`. Raises OSError, and ValueError if its rows have too many bytes."""
    import pyarrow as pa

    path = path_of(file.path)
    if not isinstance(path, Path):
        return open_parquet(pa.BufferReader(read_file(path)))
    # Open it once without waiting: if the path is a pipe, PyArrow would wait for ever.
    os.close(open_local(path))
    return open_parquet(path)
