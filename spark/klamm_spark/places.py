"""Where spool and lake lie: in a folder of this machine, or at a URI of any file system that Hadoop knows.

A folder is a `pathlib.Path`. A URI is a `HadoopPlace`, which has those methods of Path that the commands use and asks
the session's JVM, so that Spark's jars, settings and credentials count, and no others. A place that was found by
listing its folder knows its size and time: with an object store each question is a request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)([^/]*)(.*)", re.DOTALL)
_BUCKETS: Final = frozenset({"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs"})
_PATTERN: Final = re.compile(r"[*?{}\[\]\\]")
_JARS: Final = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "org.apache.hadoop:hadoop-azure"),
    "gs": "org.apache.hadoop:hadoop-gcp",
    "oss": "org.apache.hadoop:hadoop-aliyun",
}
_READ_BYTES: Final = 8 * 1024 * 1024
_VISIBLE_WHEN_CLOSED: Final = "fs.capability.outputstream.abortable"
"""Hadoop's name for stores whose files come to be when they are closed, whole and at once."""
_RENAMES_OVER: Final = frozenset({"hdfs"})
"""Where a rename to a name that is taken is one step."""
_LONGEST: Final = 400


class PlaceError(Exception):
    """A place cannot be used; the message says which, and why."""


class Status(NamedTuple):
    """What is known of a place, by the names of `os.stat_result`."""

    st_size: int
    st_mtime: float
    is_dir: bool


class HadoopPlace:
    """A place in a file system of Hadoop. Without a session, only its name can be asked for.

    Methods are those of `pathlib.Path`. They raise FileNotFoundError as it does, and PlaceError for what else a store
    may say.
    """

    __slots__ = ("_known", "_store", "uri")

    def __init__(self, uri: str, store: _Store | None = None, known: Status | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._store = store
        self._known = known

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        return f"HadoopPlace({self.uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopPlace) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __lt__(self, other: HadoopPlace) -> bool:
        return self.uri < other.uri

    def __truediv__(self, name: str) -> HadoopPlace:
        return HadoopPlace(f"{self.uri}/{name}", self._store)

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
    def parent(self) -> HadoopPlace:
        return HadoopPlace(self.uri.rpartition("/")[0], self._store)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.uri.split("/"))

    @property
    def scheme(self) -> str:
        """`s3a` of `s3a://bucket/lake`."""
        return self.uri.partition(":")[0]

    def with_name(self, name: str) -> HadoopPlace:
        return self.parent / name

    def resolve(self) -> HadoopPlace:
        return self

    def as_uri(self) -> str:
        """With what a URI must not have escaped, as commit logs have it."""
        return str(self._path.toUri().toString())

    def exists(self) -> bool:
        with _told(self.uri):
            return bool(self._fs.exists(self._path))

    def is_dir(self) -> bool:
        try:
            return self.stat().is_dir
        except FileNotFoundError:
            return False

    def stat(self) -> Status:
        """As it was when it was listed, if it was."""
        if self._known is not None:
            return self._known
        with _told(self.uri):
            return _status(self._fs.getFileStatus(self._path))

    def iterdir(self) -> Iterator[HadoopPlace]:
        with _told(self.uri):
            found = [self._listed(status) for status in self._fs.listStatus(self._path)]
        yield from found

    def glob(self, pattern: str) -> Iterator[HadoopPlace]:
        """Those of the folder whose names match; none if it is not there."""
        try:
            yield from (place for place in self.iterdir() if fnmatchcase(place.name, pattern))
        except FileNotFoundError:
            return

    def rglob(self, pattern: str) -> Iterator[HadoopPlace]:
        """Files alone, by one listing of all that is below."""
        jvm = self._opened.jvm
        try:
            with _told(self.uri):
                iterator = self._fs.listFiles(self._path, True)
                statuses = jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(iterator).toArray()
                found = [self._listed(status) for status in statuses]
        except FileNotFoundError:
            return
        yield from (place for place in found if fnmatchcase(place.name, pattern))

    def read_bytes(self) -> bytes:
        with _told(self.uri):
            stream = self._fs.open(self._path)
            try:
                parts = [stream.readNBytes(_READ_BYTES)]
                while len(parts[-1]) == _READ_BYTES:
                    parts.append(stream.readNBytes(_READ_BYTES))
            finally:
                stream.close()
        return b"".join(parts)

    def read_text(self, encoding: str) -> str:
        return self.read_bytes().decode(encoding)

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        """With all above it; it is no error that it is there."""
        with _told(self.uri):
            self._fs.mkdirs(self._path)

    def unlink(self, *, missing_ok: bool) -> None:
        """It is no error that it is gone."""
        with _told(self.uri):
            self._fs.delete(self._path, False)

    def remove_tree(self) -> None:
        """A folder with all below it."""
        with _told(self.uri):
            self._fs.delete(self._path, True)

    def rename(self, target: HadoopPlace) -> HadoopPlace:
        """A file, to a name that is free."""
        with _told(self.uri):
            renamed = self._fs.rename(self._path, target._path)
        if not renamed:
            raise PlaceError(f"{self} cannot be renamed to {target}")
        return target

    def replace(self, data: bytes) -> None:
        """Put other content in its place, so that everybody sees the old or the new and a crash leaves one of them.

        Raises PlaceError, before it has changed anything, on a store that has no way to do so.
        """
        with _told(self.uri):
            self._opened.replace(self, data)

    def require_replaceable(self) -> None:
        """Raises PlaceError if files of this folder cannot be replaced at once."""
        with _told(self.uri):
            self._opened.way_of_replacing(self)

    def _listed(self, status: Any) -> HadoopPlace:
        return HadoopPlace(status.getPath().toString(), self._store, _status(status))

    @property
    def _opened(self) -> _Store:
        if self._store is None:
            raise PlaceError(f"{self.uri} is known to the server alone")
        return self._store

    @property
    def _fs(self) -> Any:
        return self._opened.fs

    @property
    def _path(self) -> Any:
        return self._opened.path(self.uri)


class _Store:
    """One file system of Hadoop, by the session's JVM."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self.gateway: Any = spark.sparkContext._gateway
        jvm: Any = spark.sparkContext._jvm
        self.jvm = jvm
        self.conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        with _told(uri, str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())):
            self.fs: Any = self.path(uri).getFileSystem(self.conf)

    def path(self, uri: str) -> Any:
        """Java's Path. Hadoop wants a bucket's root with its slash."""
        return self._path_class(uri if uri.count("/") > 2 else f"{uri}/")

    @cached_property
    def _path_class(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path

    def qualified(self, uri: str) -> str:
        """With the authority that the configuration has for it."""
        with _told(uri):
            return str(self.fs.makeQualified(self.path(uri)).toString())

    def resolved(self, uri: str) -> Any:
        """Where a path of viewfs really lies; others lie where they are."""
        return self.fs.resolvePath(self.path(uri))

    def way_of_replacing(self, folder: HadoopPlace) -> str:
        """How a file of a folder is replaced at once: `close`, `rename` or, for a folder of this machine, its path."""
        path = self.path(folder.uri)
        if self.fs.hasPathCapability(path, _VISIBLE_WHEN_CLOSED):
            return "close"
        real = self.resolved(folder.uri)
        scheme = str(real.toUri().getScheme())
        if scheme == "file":
            return str(real.toUri().getPath())
        if scheme not in _RENAMES_OVER:
            raise PlaceError(
                f"a file cannot be replaced at once at {folder}: {scheme}:// does not promise it, and a crash would "
                'lose what the commit log says; sink = "delta" needs no such thing'
            )
        return "rename"

    def replace(self, place: HadoopPlace, data: bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        way = self.way_of_replacing(place.parent)
        path = self.path(place.uri)
        if way == "close":
            self._write(path, data)
            return
        if way != "rename":
            _replace_here(Path(way) / place.name, data)
            return
        temporary = self.path(str(place.with_name(f".{place.name}.klamm")))
        self._write(temporary, data)
        # FileSystem.rename takes no name that is not free.
        kind = getattr(self.jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self.gateway.new_array(kind, 1)
        options[0] = kind.OVERWRITE
        files = self.jvm.org.apache.hadoop.fs.FileContext.getFileContext(path.toUri(), self.conf)
        files.rename(temporary, path, options)

    def _write(self, path: Any, data: bytes) -> None:
        stream = self.fs.create(path, True)
        try:
            stream.write(bytearray(data))
        except BaseException:
            # Closed, it would be there.
            if stream.hasCapability(_VISIBLE_WHEN_CLOSED):
                stream.abort()
            raise
        stream.close()


Place = Path | HadoopPlace
"""What spool and lake, and all that is in them, are told by."""


def is_uri(text: str) -> bool:
    """Whether a text names a place by scheme, and not in this machine's folders: `file:` does not count."""
    match = _URI.match(text)
    return match is not None and match[1].lower() != "file"


def complaint(text: str | Path) -> str | None:
    """What is wrong with the text of a place, None if nothing is."""
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


def located(text: str | Path, base: Path) -> str | Path:
    """A folder as a Path, below `base` if it is relative; a URI as it is. The text has no `complaint`."""
    if isinstance(text, Path) or is_uri(text):
        return text
    match = _URI.match(text)
    return base / Path(f"/{match[3]}{match[4]}" if match else text).expanduser()


def place_of(where: str | Path, spark: SparkSession | None = None) -> Place:
    """The place itself; without a session a URI can only be named. Raises PlaceError for a file system that Spark does
    not have."""
    where = located(where, Path())
    if isinstance(where, Path):
        return where.resolve()
    if spark is None:
        return HadoopPlace(where)
    store = _Store(spark, where)
    return HadoopPlace(store.qualified(where), store)


def place_at(uri: str, table: Place) -> Place:
    """The place of a URI as commit logs have them, with what they escape; relative ones are below `table`."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if not parts.scheme:
        return (table / path).resolve()
    if isinstance(table, Path):
        return Path(path)
    return HadoopPlace(f"{parts.scheme}://{parts.netloc}{path}", table._store)


def write_durably(place: Place, text: str) -> None:
    """Put a file in place of what is there, at once and durably."""
    if isinstance(place, HadoopPlace):
        place.replace(text.encode())
    else:
        _replace_here(place, text.encode())


def _replace_here(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.klamm")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    # Hadoop's checksum of the old content would condemn the new one.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def moved(place: Place, folder: Place, name: str) -> Place:
    """A file of the same file system, moved to a folder under a name that is free."""
    target: Any = folder / name
    return place.rename(target)


def remove_tree(folder: Place) -> None:
    """A folder with all below it."""
    if isinstance(folder, Path):
        import shutil

        shutil.rmtree(folder)
    else:
        folder.remove_tree()


def _status(status: Any) -> Status:
    return Status(status.getLen(), status.getModificationTime() / 1000, status.isDirectory())


@contextmanager
def _told(uri: str, version: str = "VERSION") -> Iterator[None]:
    """For what is asked of Hadoop: its exceptions are ours, with one sentence. `version` is Hadoop's."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise told(uri, list(_chain(error.java_exception)), version) from error
    except PySparkException as error:
        # PySpark has classes of its own for some of Java's.
        raise told(uri, [(type(error).__name__, getattr(error, "_desc", None) or str(error))], version) from error


@contextmanager
def failures_told(uri: str) -> Iterator[None]:
    """For a command whose spool or lake lies at a URI: what Java says of it is a PlaceError, with one sentence."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with _told(uri):
            yield
    except FileNotFoundError as error:
        if not isinstance(error.__cause__, (Py4JJavaError, PySparkException)):
            raise
        raise PlaceError(f"{uri} cannot be used: {error}") from error


def told(uri: str, chain: list[tuple[str, str]], version: str) -> PlaceError | FileNotFoundError:
    """What an exception of Java means for a place, by the simple names and messages of it and of its causes."""
    names = [name for name, _ in chain]
    name, message = chain[0]
    said = message.strip().removeprefix(f"{uri}: ").partition("\n")[0][:_LONGEST] or name
    scheme = uri.partition(":")[0]
    if {"ClassNotFoundException", "UnsupportedFileSystemException"} & set(names):
        return PlaceError(f"Spark has no file system for {scheme}://{_jar_of(scheme, version)}")
    if "UnknownStoreException" in names or "NoSuchBucketException" in names:
        return PlaceError(f"there is no such bucket: {uri}")
    if name in ("FileNotFoundException", "NoSuchFileException"):
        return FileNotFoundError(said)
    if {"NoAuthWithAWSException", "NoAwsCredentialsException"} & set(names):
        return PlaceError(f"{uri}: no credentials were found: {said}")
    if name in ("AccessDeniedException", "AccessControlException"):
        return PlaceError(f"{uri}: access is denied: {said}")
    return PlaceError(f"{uri} cannot be used: {said}")


def _chain(exception: Any) -> Iterator[tuple[str, str]]:
    """Simple names and messages of an exception and its causes."""
    while exception is not None:
        yield str(exception.getClass().getSimpleName()), str(exception.getMessage() or "")
        exception = exception.getCause()


def _jar_of(scheme: str, version: str) -> str:
    package = _JARS.get(scheme)
    if package is None:
        return ": add the jar that has it to conf, as spark.jars or spark.jars.packages"
    return f': add its jar to conf, e.g. "spark.jars.packages" = "{package}:{version}"'
