"""Paths of the spool and the lake: a folder of this machine, or a URI of any file system that Hadoop supports.

A folder is a `pathlib.Path`. A URI is a `HadoopPath`: it has the methods of Path that the commands use and calls Hadoop
in the session's JVM, so that Spark's jars, settings and credentials apply. A path that was found by listing its folder
keeps its size and time: with an object store each look-up is a request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.runtime import PLATFORM, sync_directory
from klamm_spark.storage.hadoop_errors import FileSystemError, translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)([^/]*)(.*)", re.DOTALL)
_BUCKETS: Final = frozenset({"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs"})
_PATTERN: Final = re.compile(r"[*?{}\[\]\\]")
_READ_BYTES: Final = 8 * 1024 * 1024


class Status(NamedTuple):
    """Size and time of a path, by the names of `os.stat_result`."""

    st_size: int
    st_mtime: float
    is_dir: bool


class HadoopPath:
    """A path in a file system of Hadoop. Without a session, only its name can be used.

    Methods are those of `pathlib.Path`. They raise FileNotFoundError as it does, and FileSystemError for every other
    failure of the store.
    """

    __slots__ = ("_file_system", "_known", "uri")

    def __init__(self, uri: str, file_system: _FileSystem | None = None, known: Status | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._file_system = file_system
        self._known = known

    def __str__(self) -> str:
        return self.uri

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopPath) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __lt__(self, other: HadoopPath) -> bool:
        return self.uri < other.uri

    def __truediv__(self, name: str) -> HadoopPath:
        return HadoopPath(f"{self.uri}/{name}", self._file_system)

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def parent(self) -> HadoopPath:
        return HadoopPath(self.uri.rpartition("/")[0], self._file_system)

    def with_name(self, name: str) -> HadoopPath:
        return self.parent / name

    def resolve(self) -> HadoopPath:
        return self

    def exists(self) -> bool:
        with translated(self.uri):
            return bool(self._fs.exists(self._path))

    def is_dir(self) -> bool:
        try:
            return self.stat().is_dir
        except FileNotFoundError:
            return False

    def stat(self) -> Status:
        """Return the status, from the listing of the folder if that is how the path was found."""
        if self._known is not None:
            return self._known
        with translated(self.uri):
            return _status(self._fs.getFileStatus(self._path))

    def iterdir(self) -> Iterator[HadoopPath]:
        with translated(self.uri):
            statuses = list(self._fs.listStatus(self._path))
        for status in statuses:
            yield HadoopPath(status.getPath().toString(), self._file_system, _status(status))

    def glob(self, pattern: str) -> Iterator[HadoopPath]:
        """The files of this folder whose names match; none if there is no such folder."""
        try:
            yield from (path for path in self.iterdir() if fnmatchcase(path.name, pattern))
        except FileNotFoundError:
            return

    def read_bytes(self) -> bytes:
        with translated(self.uri):
            stream = self._fs.open(self._path)
            try:
                parts = [stream.readNBytes(_READ_BYTES)]
                while len(parts[-1]) == _READ_BYTES:
                    parts.append(stream.readNBytes(_READ_BYTES))
            finally:
                stream.close()
        return b"".join(parts)

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        """Create the folder and its parents, if it does not exist."""
        with translated(self.uri):
            self._fs.mkdirs(self._path)

    def unlink(self, *, missing_ok: bool) -> None:
        """Delete the file, if it exists."""
        with translated(self.uri):
            self._fs.delete(self._path, False)

    def create(self, data: bytes) -> None:
        """Write a file that readers see whole or not at all. If there is one already, it stays."""
        with translated(self.uri):
            self._opened.create(self, data)

    @property
    def _opened(self) -> _FileSystem:
        if self._file_system is None:
            raise FileSystemError(f"{self.uri} can be opened in a Spark session only")
        return self._file_system

    @property
    def _fs(self) -> Any:
        return self._opened.fs

    @property
    def _path(self) -> Any:
        return self._opened.path(self.uri)


class _FileSystem:
    """One file system of Hadoop, in the session's JVM."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self.jvm = jvm
        self.conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        with translated(uri, str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())):
            self.fs: Any = self.path(uri).getFileSystem(self.conf)

    def path(self, uri: str) -> Any:
        """Java's Path. Hadoop requires a bucket's root with its slash."""
        return self._path_class(uri if uri.count("/") > 2 else f"{uri}/")

    @cached_property
    def _path_class(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path

    def qualified(self, uri: str) -> str:
        """The URI with the authority that Hadoop's configuration gives it."""
        with translated(uri):
            return str(self.fs.makeQualified(self.path(uri)).toString())

    def create(self, target: HadoopPath, data: bytes) -> None:
        temporary = self.path(str(target.with_name(f".{target.name}.klamm")))
        stream = self.fs.create(temporary, True)
        stream.write(bytearray(data))
        stream.close()
        if not self.fs.rename(temporary, self.path(target.uri)):
            self.fs.delete(temporary, False)


AnyPath = Path | HadoopPath
"""A path in the spool or the lake."""
SPOOL_IS_A_FILE: Final = "is a file; a spool is a folder, with a folder of each node"


def check_spool(spool: Path | None) -> str | None:
    """Return the fault of the folder that a server writes its spool to; None if it has none."""
    # A URI has become a path by now, with one slash.
    scheme = next((part for part in spool.parts if re.fullmatch(r"[a-z][a-z0-9+.-]+:", part)), "") if spool else ""
    if not scheme:
        return SPOOL_IS_A_FILE if spool is not None and os.path.isfile(spool) else None
    return (
        f"must be a folder of this machine, not a URI ({scheme}//): the server writes there; where the commands find "
        "a copy of it is [audit.spark] spool"
    )


def is_uri(text: str) -> bool:
    """Return True if a text is the URI of a file system other than this machine's: `file:` does not count."""
    match = _URI.match(text)
    return match is not None and match[1].lower() != "file"


def check_location(text: str | Path) -> str | None:
    """Return the fault in the text of a folder or URI; None if it has none."""
    if isinstance(text, Path):
        return None
    if not text.strip():
        return "must be a folder or a URI, not empty"
    match = _URI.match(text)
    if match is None:
        return None
    scheme, slashes, authority, path = match.groups()
    if scheme.lower() == "file":
        local = len(slashes) != 2
        return None if local else f'"{text}" names a host; a folder of this machine is file:///FOLDER'
    if len(slashes) == 1:
        return f'"{text}" has one slash: did you mean {scheme}:/{text.partition(":")[2]}'
    if len(slashes) > 3 or (len(slashes) == 3 and scheme.lower() in _BUCKETS):
        return f'"{text}" names no bucket: {scheme}://BUCKET/FOLDER'
    if _PATTERN.search(authority + path):
        return f'"{text}" has a character that Spark takes for a pattern: one of * ? {{ }} [ ] \\'
    return None


def parse_location(text: str | Path, base: Path) -> str | Path:
    """A folder as a Path, below `base` if it is relative; a URI as it is. The text has passed `check_location`."""
    if isinstance(text, Path) or is_uri(text):
        return text
    match = _URI.match(text)
    return base / Path(f"/{match[3]}{match[4]}" if match else text).expanduser()


def path_of(location: str | Path, spark: SparkSession | None = None) -> AnyPath:
    """The path of a folder or URI; without a session only the name of a URI can be used.

    Raises FileSystemError if Spark does not support the file system.
    """
    location = parse_location(location, Path())
    if isinstance(location, Path):
        return location.resolve()
    if spark is None:
        return HadoopPath(location)
    file_system = _FileSystem(spark, location)
    return HadoopPath(file_system.qualified(location), file_system)


def create_durably(path: AnyPath, data: bytes) -> None:
    """Write a file whose name stands for its content: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(path, HadoopPath):
        path.create(data)
    else:
        _replace_local(path, data)
        sync_directory(path.parent.parent)


def _replace_local(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.klamm")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        PLATFORM.sync(file.fileno())
    # Hadoop would compare the new content with the checksum of the old.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    PLATFORM.replace(temporary, path)
    sync_directory(path.parent)


def sync_all(folder: AnyPath) -> None:
    """Wait until the disk has all that was written to the file system of a folder; Spark syncs nothing itself. A store
    has a file when it is there. Raises OSError."""
    if not isinstance(folder, Path) or not PLATFORM.directory_flags:
        return
    descriptor = PLATFORM.open(folder, os.O_RDONLY | PLATFORM.directory_flags, 0)
    try:
        PLATFORM.sync_file_system(descriptor)
    finally:
        os.close(descriptor)


def _status(status: Any) -> Status:
    return Status(status.getLen(), status.getModificationTime() / 1000, status.isDirectory())
