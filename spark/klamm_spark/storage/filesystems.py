"""Paths of the spool and the lake: a folder of this machine, or a URI of a store that PyArrow and `deltalake` support.

A folder is a `pathlib.Path`. A URI is a `StorePath`, which has the methods of Path that the commands use. Both
libraries find credentials and endpoints in the environment, e.g. AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL. Each look-up
in a store is a request. So a path keeps its size if it comes from the listing of a folder.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm.runtime import PLATFORM, sync_directory

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)([^/]*)(.*)", re.DOTALL)
_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "abfs", "abfss", "az"})
_MAX_MESSAGE_CHARS: Final = 400
MOST_BYTES: Final = 1 << 30
"""The most bytes of a file that is read as a whole. No segment is larger."""
SMALL_BYTES: Final = 1 << 20
"""The most bytes of a seal, a key, a checkpoint or a time stamp."""
MOST_COMMIT_BYTES: Final = 64 * 1024**2
"""The most bytes of a commit as JSON, because reading it takes many times the memory."""
MOST_COMMITS_BYTES: Final = 4 * MOST_COMMIT_BYTES
"""The most bytes of all commits since the last checkpoint, because they are read together."""


class FileSystemError(OSError):
    """A file system cannot be used. The message names the path and gives the reason."""


class UnfitFileError(OSError):
    """The path has a file that is larger than any that klamm writes, or no file. The message names it."""


class Status(NamedTuple):
    """The size of a path. `st_size` is named as in `os.stat_result`."""

    st_size: int
    is_dir: bool


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    """Raise FileSystemError, with one sentence, for any other error of a store."""
    try:
        yield
    except (FileNotFoundError, FileSystemError):
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:_MAX_MESSAGE_CHARS]
        raise FileSystemError(f"{uri} cannot be used: {said or type(error).__name__}") from error


@lru_cache(maxsize=16)
def _store(root: str) -> Any:
    from pyarrow.fs import FileSystem

    with _translated(root):
        # `s3a` is Hadoop's name of `s3`.
        return FileSystem.from_uri(root.replace("s3a://", "s3://", 1))[0]


def read_file(path: AnyPath, most_bytes: int = MOST_BYTES, *, may_wait: bool = False) -> bytes:
    """Return the content of a file. Raises OSError, also if the file is larger than `most_bytes`, which protects the
    memory.

    If it `may_wait`, the path may also be a pipe or a terminal, because a user has named it.
    """
    if isinstance(path, Path):
        return _read_local(path, most_bytes, may_wait)
    if (size_bytes := path.stat().st_size) > most_bytes:
        raise too_large(path, size_bytes, most_bytes)
    return path.read_bytes()


def _read_local(path: Path, most_bytes: int, may_wait: bool) -> bytes:
    """Read a file from one descriptor, because another file may get its name meanwhile."""
    with open(open_local(path, may_wait=may_wait), "rb") as file:
        status = os.fstat(file.fileno())
        is_stream = not stat.S_ISREG(status.st_mode)
        if status.st_size > most_bytes:
            raise too_large(path, status.st_size, most_bytes)
        data = file.read(most_bytes + 1) if is_stream else file.read(min(most_bytes, status.st_size) + 1)
        if not is_stream and len(data) > status.st_size:
            # The file has grown since `fstat`.
            data += file.read(most_bytes + 1 - len(data))
    if len(data) > most_bytes:
        raise too_large(path, len(data), most_bytes)
    return data


def open_local(path: Path, *, may_wait: bool = False) -> int:
    """Return a descriptor that reads a file: with `may_wait`, also a pipe or a terminal. Raises OSError."""
    # A socket cannot be opened, and opening a pipe without a writer would wait.
    _require_file(path, path.stat().st_mode, may_wait)
    descriptor = PLATFORM.open(path, os.O_RDONLY | (0 if may_wait else getattr(os, "O_NONBLOCK", 0)), 0)
    try:
        _require_file(path, os.fstat(descriptor).st_mode, may_wait)
    except UnfitFileError:
        os.close(descriptor)
        raise
    return descriptor


def _require_file(path: AnyPath, mode: int, may_wait: bool) -> None:
    is_stream = stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
    if not stat.S_ISREG(mode) and not (may_wait and is_stream):
        raise UnfitFileError(f"{path} is no file")


def size_of(path: AnyPath) -> int:
    """Return the size of a file. Raises OSError, also if the path has something other than a file."""
    status = path.stat()
    if isinstance(status, os.stat_result):
        _require_file(path, status.st_mode, may_wait=False)
    return status.st_size


def too_large(path: AnyPath, size_bytes: int, most_bytes: int) -> UnfitFileError:
    """Return the error for a file with more bytes than klamm reads."""
    return UnfitFileError(f"{path} has {size_bytes:,} bytes, and at most {most_bytes:,} are read")


class StorePath:
    """A path in an object store, with methods of `pathlib.Path`.

    They raise FileNotFoundError as Path does, and FileSystemError for every other failure of the store.
    """

    __slots__ = ("_known", "uri")

    def __init__(self, uri: str, known: Status | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._known = known

    def __str__(self) -> str:
        return self.uri

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __lt__(self, other: StorePath) -> bool:
        return self.uri < other.uri

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(f"{self.uri}/{name}")

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
    def parent(self) -> StorePath:
        return StorePath(self.uri.rpartition("/")[0])

    def with_name(self, name: str) -> StorePath:
        return self.parent / name

    def resolve(self) -> StorePath:
        return self

    def as_uri(self) -> str:
        return self.uri

    def exists(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        return self.exists() and self.stat().is_dir

    def stat(self) -> Status:
        """Return the status. If the path comes from the listing of its folder, the listing's status is used."""
        from pyarrow.fs import FileType

        if self._known is not None:
            return self._known
        with _translated(self.uri):
            (info,) = self._store.get_file_info([self._path])
        if info.type == FileType.NotFound and not any(self._listed()):
            raise FileNotFoundError(self.uri)
        return Status(info.size or 0, info.type != FileType.File)

    def iterdir(self) -> Iterator[StorePath]:
        found = list(self._listed())
        if not found:
            raise FileNotFoundError(self.uri)
        yield from found

    def _listed(self) -> Iterator[StorePath]:
        from pyarrow.fs import FileSelector, FileType

        with _translated(self.uri):
            infos = self._store.get_file_info(FileSelector(self._path, allow_not_found=True))
        for info in infos:
            yield StorePath(f"{self.uri}/{info.base_name}", Status(info.size or 0, info.type == FileType.Directory))

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """Yield the files of this folder whose names match, and nothing if there is no such folder."""
        yield from (path for path in self._listed() if fnmatchcase(path.name, pattern))

    def read_bytes(self) -> bytes:
        with _translated(self.uri), self._store.open_input_file(self._path) as file:
            return bytes(file.read())

    def open_output(self) -> Any:
        """Open a new file. It appears in the store when it is closed."""
        with _translated(self.uri):
            return self._store.open_output_stream(self._path)

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        """Do nothing: a store has no folders."""

    def unlink(self, *, missing_ok: bool) -> None:
        """Delete the file. Raises FileNotFoundError if there is none and `missing_ok` is False."""
        try:
            with _translated(self.uri):
                self._store.delete_file(self._path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    @property
    def _root(self) -> str:
        match = _URI.match(f"{self.uri}/")
        assert match is not None
        return f"{match[1]}://{match[3]}"

    @property
    def _path(self) -> str:
        """PyArrow's form of the path. It begins with the bucket."""
        return self.uri.partition("://")[2]

    @property
    def _store(self) -> Any:
        return _store(self._root)


AnyPath = Path | StorePath
"""A path in the spool or the lake."""
SPOOL_IS_A_FILE: Final = "is a file; a spool is a folder, with a folder of each node"


def check_spool(spool: Path | None) -> str | None:
    """Return the fault of the folder to which a server writes its spool, or None."""
    # Here a URI is a path already, so it has only one slash.
    scheme = next((part for part in spool.parts if re.fullmatch(r"[a-z][a-z0-9+.-]+:", part)), "") if spool else ""
    if not scheme:
        return SPOOL_IS_A_FILE if spool is not None and os.path.isfile(spool) else None
    return (
        f"must be a folder of this machine, not a URI ({scheme}//): the server writes there; where the commands find "
        "a copy of it is [audit.spark] spool"
    )


def is_uri(text: str) -> bool:
    """Return True if a text is the URI of another file system than this machine's. `file:` URIs are this machine's."""
    match = _URI.match(text)
    return match is not None and match[1].lower() != "file"


def check_location(text: str | Path) -> str | None:
    """Return the fault in the text of a folder or URI, or None."""
    if isinstance(text, Path):
        return None
    if not text.strip():
        return "must be a folder or a URI, not empty"
    match = _URI.match(text)
    if match is None:
        return None
    scheme, slashes, _, _ = match.groups()
    if scheme.lower() == "file":
        local = len(slashes) != 2
        return None if local else f'"{text}" names a host; a folder of this machine is file:///FOLDER'
    if len(slashes) == 1:
        return f'"{text}" has one slash: did you mean {scheme}:/{text.partition(":")[2]}'
    if len(slashes) > 3 or (len(slashes) == 3 and scheme.lower() in _BUCKETS):
        return f'"{text}" names no bucket: {scheme}://BUCKET/FOLDER'
    return None


def parse_location(text: str | Path, base: Path) -> str | Path:
    """Return a folder as a Path, below `base` if it is relative; a URI as it is.

    The text has passed `check_location`.
    """
    if isinstance(text, Path) or is_uri(text):
        return text
    match = _URI.match(text)
    return base / Path(f"/{match[3]}{match[4]}" if match else text).expanduser()


def path_of(location: str | Path) -> AnyPath:
    """Return the path of a folder or URI."""
    location = parse_location(location, Path())
    return location.resolve() if isinstance(location, Path) else StorePath(location)


@contextmanager
def _naming(path: AnyPath) -> Iterator[None]:
    """Replace an OSError without a file's name, e.g. of a full disk, by a FileSystemError with the path."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileSystemError) or error.filename is not None:
            raise
        raise FileSystemError(f"{path} cannot be written: {error.strerror or error}") from error


def create_durably(path: AnyPath, data: bytes) -> None:
    """Write a file whole and durably, or not at all. Raises OSError, which names the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(path, StorePath):
        # A store may fail only when the file is closed.
        with _translated(path.uri), path.open_output() as file:
            file.write(data)
    else:
        with _naming(path):
            _replace_local(path, data)
            sync_directory(path.parent.parent)


def _replace_local(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.klamm")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        PLATFORM.sync(file.fileno())
    # Hadoop would compare the new content with the checksum of the old content.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    PLATFORM.replace(temporary, path)
    sync_directory(path.parent)


def sync_all(folder: AnyPath) -> None:
    """Wait until the disk has everything that was written to the file system of a folder, because Spark syncs nothing.

    In an object store a file is durable when it appears. Raises OSError, which names the folder.
    """
    if not isinstance(folder, Path) or not PLATFORM.directory_flags:
        return
    descriptor = PLATFORM.open(folder, os.O_RDONLY | PLATFORM.directory_flags, 0)
    try:
        with _naming(folder):
            PLATFORM.sync_file_system(descriptor)
    finally:
        os.close(descriptor)
