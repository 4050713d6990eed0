"""The check of the table's log before deltalake opens it: deltalake would read commits and checkpoints of any size."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.parquet import check_rows, open_parquet
from klamm_spark.storage.filesystems import (
    MOST_BYTES,
    MOST_COMMIT_BYTES,
    MOST_COMMITS_BYTES,
    SMALL_BYTES,
    AnyPath,
    UnfitFileError,
    read_file,
    size_of,
    too_large,
)

_HINT: Final = "_last_checkpoint"
_SIDECARS: Final = "_sidecars"
_VERSION: Final = re.compile(r"(\d+)\.")
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_WHOLE: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_TEXTS: Final = (".json", ".crc")
"""The suffixes of commits, and of checksums of versions: deltalake reads the newest of these too, and believes it."""
_CHECKED: Final = 64


def check_table_log(folder: AnyPath, files: Sequence[AnyPath]) -> int:
    """Return the bytes of the commits since the last checkpoint; `files` are those of a version.

    Raise LakeError if the log has what would be waited for, or fill the memory.
    """
    commits = [int(found[1]) for path in files if (found := _COMMIT.fullmatch(path.name))]
    whole = [int(found[1]) for path in files if (found := _WHOLE.fullmatch(path.name))]
    # Delta ignores a checkpoint whose version has no commit.
    newest = max((version for version in whole if version <= max(commits, default=-1)), default=-1)
    left_bytes, commits_bytes = MOST_BYTES, 0
    # Of older versions nothing is read.
    wanted = [path for path in files if (found := _VERSION.match(path.name)) and int(found[1]) >= newest]
    try:
        with contextlib.suppress(FileNotFoundError):
            read_file(folder / _HINT, SMALL_BYTES)
        for path in (*wanted, *(folder / _SIDECARS).glob("*.parquet")):
            # What is not there any more is older than the table keeps it.
            size_bytes = 0
            with contextlib.suppress(FileNotFoundError):
                size_bytes = _checked_bytes(path)
            left_bytes -= size_bytes
            if left_bytes < 0:
                raise UnfitFileError(f"{path} and the files beside it have more than {MOST_BYTES:,} bytes")
            if (found := _COMMIT.fullmatch(path.name)) and int(found[1]) > newest:
                commits_bytes += size_bytes
    except OSError as error:
        raise LakeError(f"the commits of {folder.parent} cannot be read: {error}") from error
    if commits_bytes > MOST_COMMITS_BYTES:
        raise LakeError(
            f"the commits of {folder.parent} since its last checkpoint have {commits_bytes:,} bytes, and at most "
            f"{MOST_COMMITS_BYTES:,} are read: another program must make a checkpoint, e.g. create_checkpoint() of "
            "deltalake"
        )
    return commits_bytes


def _checked_bytes(path: AnyPath) -> int:
    """Return the size of a file. Raises OSError if it is too large or invalid."""
    size_bytes = size_of(path)
    if path.suffix in _TEXTS and size_bytes > MOST_COMMIT_BYTES:
        raise too_large(path, size_bytes, MOST_COMMIT_BYTES)
    if path.suffix == ".parquet" and size_bytes <= MOST_BYTES:
        _check_checkpoint(path, size_bytes, getattr(path.stat(), "st_mtime_ns", 0))
    return size_bytes


@lru_cache(_CHECKED)
def _check_checkpoint(path: AnyPath, size_bytes: int, changed_ns: int) -> None:
    """Raise OSError for a checkpoint that would fill the memory. Each file is checked once, unless its size or time
    changes.
    """
    import pyarrow as pa

    try:
        with open_parquet(pa.BufferReader(read_file(path))) as parquet:
            check_rows(parquet, are_kept=True)
    except ValueError as error:
        raise UnfitFileError(f"{path}: {error}") from error
