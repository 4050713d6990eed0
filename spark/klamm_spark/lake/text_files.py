"""Tables of texts in the lake, e.g. the ledger: folders of Parquet files that any engine can read.

A file is written once, as a whole. Its name is the SHA-256 of its content.
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
"""The maximum bytes of the texts in a file. `compact` merges files up to a tenth of it."""

_ROW_BYTES: Final = 512
"""An estimate of the bytes that a row takes in memory, besides its texts."""


class TextFile(NamedTuple):
    """The content of a file. If the file cannot be read or was changed, `problem` is a sentence about that."""

    path: AnyPath
    rows: Sequence[tuple[str, ...]] = ()
    problem: str = ""


def read_text_files(folder: AnyPath, columns: Sequence[str]) -> Iterator[TextFile]:
    """Yield the files of a table in the order of their names, with these columns.

    If a value of a file is not a text, the file has no rows. If `compact` merges a file into another meanwhile, the
    other file is read too, after the rest.
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
                # If a file is missing that was listed twice, no other file has its rows.
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
    """Read a file. Raises FileNotFoundError; other errors are in the result."""
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
    """Add rows to a table, all or none. Return the new file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in columns])
    buffer = BytesIO()
    pq.write_table(pa.table([list(values) for values in zip(*rows, strict=True)], schema), buffer, compression="zstd")
    data = buffer.getvalue()
    path = folder / f"{hashlib.sha256(data).hexdigest()[:_NAME_DIGITS]}{_SUFFIX}"
    create_durably(path, data)
    return path
