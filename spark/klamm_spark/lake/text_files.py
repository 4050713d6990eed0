"""Tables of texts in the lake, its seals for one: folders of Parquet files that any engine reads.

A file is written once, whole, and its name is the SHA-256 of its content.
"""

from __future__ import annotations

import hashlib
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm_spark.lake.parquet import open_parquet, whole_batches_of
from klamm_spark.storage.filesystems import AnyPath, create_durably, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SUFFIX: Final = ".parquet"
_NAME_DIGITS: Final = 32
_MOST_BYTES: Final = 1024**3
"""The most bytes of the texts of a file: `compact` merges files up to a tenth of it."""

_ROW_BYTES: Final = 512
"""The bytes that a row takes in memory in addition to its texts."""


class TextFile(NamedTuple):
    """The content of a file; `problem` is the reason why it cannot be read, or reports that it was changed."""

    path: AnyPath
    rows: Sequence[tuple[str, ...]] = ()
    problem: str = ""


def read_text_files(folder: AnyPath, columns: Sequence[str]) -> Iterator[TextFile]:
    """Yield the files of a table, by their names, with these columns. A file in which a value is no text has no rows.

    If a file goes meanwhile, because `compact` has merged it into another, that one is read too, after the others.
    """
    read, gone = set[str](), set[str]()
    while True:
        files: list[AnyPath] = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: path.name)
        missed = False
        for path in files:
            if path.name in read:
                continue
            try:
                found = _read(path, columns)
            except FileNotFoundError as error:
                # Of one that is listed a second time, nothing else has the rows.
                if path.name not in gone:
                    gone.add(path.name)
                    missed = True
                    continue
                found = TextFile(path, problem=f"cannot be read: {error}")
            read.add(path.name)
            yield found
        if not missed:
            return


def _read(path: AnyPath, columns: Sequence[str]) -> TextFile:
    """Raises FileNotFoundError."""
    import pyarrow as pa

    rows, size_bytes = list[tuple[str, ...]](), 0
    try:
        data = read_file(path)
        with open_parquet(pa.BufferReader(data)) as parquet:
            for batch in whole_batches_of(parquet, columns=list(columns)):
                size_bytes += batch.nbytes + _ROW_BYTES * len(batch)
                if size_bytes > _MOST_BYTES:
                    raise ValueError(f"it unpacks to more than {_MOST_BYTES:,} bytes")
                rows += zip(*(_texts(batch.column(name)) for name in columns), strict=True)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        return TextFile(path, problem=f"cannot be read: {error}".partition("\n")[0])
    same = hashlib.sha256(data).hexdigest()[:_NAME_DIGITS] == path.stem
    return TextFile(path, rows, "" if same else "was changed: its name is not its SHA-256")


def _texts(column: Any) -> list[str]:
    values: list[str] = column.to_pylist()
    if not all(isinstance(value, str) for value in values):
        raise ValueError("a value is no text")
    return values


def write_text_file(folder: AnyPath, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> AnyPath:
    """Add rows to a table, all or none; the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in columns])
    buffer = BytesIO()
    pq.write_table(pa.table([list(values) for values in zip(*rows, strict=True)], schema), buffer, compression="zstd")
    data = buffer.getvalue()
    path = folder / f"{hashlib.sha256(data).hexdigest()[:_NAME_DIGITS]}{_SUFFIX}"
    create_durably(path, data)
    return path
