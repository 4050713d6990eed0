"""Paths of a spool at a URI, for processes without a JVM: PyArrow's file systems, e.g. `s3://` and `gs://`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any, Final, cast

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from klamm_spark.storage.filesystems import PureHadoopPath, Status

_SAME_STORES: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of schemes, and Arrow's."""


class ArrowPath(PureHadoopPath):
    """A path in a file system of PyArrow. Methods are those of `pathlib.Path`, and raise OSError as they do."""

    __slots__ = ()

    def exists(self) -> bool:
        return bool(self._info().type != FileType.NotFound)

    def is_dir(self) -> bool:
        return bool(self._info().type == FileType.Directory)

    def stat(self) -> Status:
        return _status(self._info())

    def iterdir(self) -> Iterator[ArrowPath]:
        for info in self._fs.get_file_info(FileSelector(self.uri)):
            yield _ListedPath(info.path, self._file_system, info)

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return file.read()

    def open(self, mode: str) -> IO[bytes]:
        """Open for reading: the only mode is `rb`."""
        assert mode == "rb"
        return cast("IO[bytes]", io.BufferedReader(self._fs.open_input_file(self.uri)))

    def _info(self) -> FileInfo:
        return self._fs.get_file_info(self.uri)

    @property
    def _fs(self) -> Any:
        return self._file_system


class _ListedPath(ArrowPath):
    """As it was when its folder was listed: with an object store each look-up is a request."""

    __slots__ = ("_known",)

    def __init__(self, uri: str, file_system: Any = None, known: FileInfo | None = None) -> None:
        super().__init__(uri, file_system)
        self._known = known

    def _info(self) -> FileInfo:
        return super()._info() if self._known is None else self._known


def arrow_path(uri: str) -> ArrowPath:
    """The path of a URI. Raises ValueError if PyArrow has no such file system."""
    scheme, separator, rest = uri.partition("://")
    try:
        file_system, path = FileSystem.from_uri(f"{_SAME_STORES.get(scheme, scheme)}{separator}{rest}")
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"the format klamm_audit cannot read {uri}: PyArrow says {reason}") from error
    return ArrowPath(path, file_system)


def _status(info: FileInfo) -> Status:
    if info.type == FileType.NotFound:
        raise FileNotFoundError(info.path)
    return Status(info.size, (info.mtime_ns or 0) / 1e9, info.type == FileType.Directory)
