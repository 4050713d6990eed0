"""`Recording`: every call that changes the data directory, in order, with the marks of the workload between the
calls.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from klamm.runtime import SYSTEM_THREADS, Threads
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.storage.store import Statement, Store, StoreError

ROOT = 0


class Create(NamedTuple):
    directory: int
    name: str
    node: int
    is_directory: bool = False


class Write(NamedTuple):
    node: int
    position: int
    data: bytes


class Truncate(NamedTuple):
    node: int
    size_bytes: int


class Sync(NamedTuple):
    node: int


class FailedSync(NamedTuple):
    node: int


class Rename(NamedTuple):
    directory: int
    old: str
    new: str


class Remove(NamedTuple):
    directory: int
    name: str


class Commit(NamedTuple):
    statements: Sequence[Statement]
    sync: bool


Operation: TypeAlias = Create | Write | Truncate | Sync | FailedSync | Rename | Remove | Commit


class Fault(NamedTuple):
    """A fault: from the call `first_call` on, this number of calls fails with this error number."""

    first_call: int
    calls: int
    error: int


class Recording:
    """The recorded operations on one directory. `length` counts operations, and `calls` those that may fail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations: list[Operation] = []
        self.fault: Fault | None = None
        self.calls = 0
        self.lock = threading.RLock()
        self._entries: dict[int, dict[str, int]] = {ROOT: {}}
        self._nodes = 1
        self._descriptors: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.operations)

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def fails(self) -> OSError | None:
        """Count a call. Return the error with which it is to fail, or None."""
        call, fault = self.calls, self.fault
        self.calls += 1
        if fault is not None and fault.first_call <= call < fault.first_call + fault.calls:
            return OSError(fault.error, os.strerror(fault.error))
        return None

    def place(self, path: str | Path) -> tuple[int, str]:
        """Return the directory of a path, and the name in it."""
        node = ROOT
        *directories, name = Path(path).relative_to(self.root).parts
        for each in directories:
            node = self._entries[node][each]
        return node, name

    def node(self, path: str | Path) -> int | None:
        if Path(path) == self.root:
            return ROOT
        directory, name = self.place(path)
        return self._entries[directory].get(name)

    def create(self, path: str | Path, *, is_directory: bool = False) -> int:
        directory, name = self.place(path)
        node = self._nodes
        self._nodes += 1
        self._entries[directory][name] = node
        if is_directory:
            self._entries[node] = {}
        self.add(Create(directory, name, node, is_directory))
        return node

    def rename(self, source: Path, target: Path) -> None:
        directory, old = self.place(source)
        other, new = self.place(target)
        assert directory == other, "renamed into another directory"
        self._entries[directory][new] = self._entries[directory].pop(old)
        self.add(Rename(directory, old, new))

    def remove(self, path: Path) -> None:
        directory, name = self.place(path)
        del self._entries[directory][name]
        self.add(Remove(directory, name))

    def adopt(self) -> None:
        """Record the present content of the directory as content that was synced long ago."""
        for path in sorted(self.root.rglob("*")):
            if path.name == "klamm.db":
                continue
            node = self.create(path, is_directory=path.is_dir())
            if path.is_file():
                self.add(Write(node, 0, path.read_bytes()))
                self.add(Sync(node))
        for node in [*self._entries]:
            self.add(Sync(node))

    def opened(self, descriptor: int, node: int) -> None:
        self._descriptors[descriptor] = node

    def closed(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)

    def node_of(self, descriptor: int) -> int:
        return self._descriptors[descriptor]


class RecordedDisk(FileOperations):
    """File operations that are recorded, and fail if the recording has a fault for them. A sync is only recorded."""

    __slots__ = ("_recording",)

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def open(self, path: str | Path, flags: int) -> int:
        recording = self._recording
        with recording.lock:
            node = recording.node(path)
            if flags & os.O_CREAT and (node is None or flags & os.O_TRUNC):
                self._check()
            descriptor = super().open(path, flags)
            if node is None:
                node = recording.create(path)
            elif flags & os.O_TRUNC:
                recording.add(Truncate(node, 0))
            recording.opened(descriptor, node)
            return descriptor

    def close(self, descriptor: int) -> None:
        with self._recording.lock:
            self._recording.closed(descriptor)
            os.close(descriptor)

    def pwrite(self, descriptor: int, data: Any, position: int) -> int:
        recording = self._recording
        with recording.lock:
            node = recording.node_of(descriptor)
            error = recording.fails()
            if error is not None and error.errno == errno.ENOSPC and len(data) > 1:
                # A full disk first takes a part of the data.
                data, error = memoryview(data)[: len(data) // 2], None
            if error is not None:
                raise error
            written = os.pwrite(descriptor, data, position)
            recording.add(Write(node, position, bytes(data[:written])))
            return written

    def ftruncate(self, descriptor: int, size_bytes: int) -> None:
        with self._recording.lock:
            self._check()
            os.ftruncate(descriptor, size_bytes)
            self._recording.add(Truncate(self._recording.node_of(descriptor), size_bytes))

    def fsync(self, descriptor: int) -> None:  # type: ignore[override]
        recording = self._recording
        with recording.lock:
            node = recording.node_of(descriptor)
            error = recording.fails()
            if error is not None:
                recording.add(FailedSync(node))
                raise error
            recording.add(Sync(node))

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        with self._recording.lock:
            self._check()
            os.replace(source, target)
            self._recording.rename(source, target)

    def unlink(self, path: Path) -> None:  # type: ignore[override]
        with self._recording.lock:
            if path.exists():
                self._check()
            os.unlink(path)
            self._recording.remove(path)

    def mkdir(self, path: Path) -> None:  # type: ignore[override]
        with self._recording.lock:
            self._check()
            os.mkdir(path)
            self._recording.create(path, is_directory=True)

    def rmdir(self, path: Path) -> None:  # type: ignore[override]
        with self._recording.lock:
            self._check()
            os.rmdir(path)
            self._recording.remove(path)

    def _check(self) -> None:
        error = self._recording.fails()
        if error is not None:
            raise error


class RecordedStore(Store):
    """A store whose commits are recorded. It has no thread, so callers of `submit` call `commit_pending`."""

    def __init__(self, path: Path, recording: Recording | None, *, sync_submitted: bool = False) -> None:
        super().__init__(path, sync_submitted=sync_submitted)
        self._recording = recording

    def start(self, threads: Threads = SYSTEM_THREADS) -> None:
        """Start no thread, because callers that wait for a commit make it themselves."""

    def transact(self, statements: Sequence[Statement], *, sync: bool) -> None:
        recording = self._recording
        if recording is not None:
            with recording.lock:
                error = recording.fails()
            if error is not None:
                raise StoreError(str(error)) from error
        # A commit that is recorded as synced needs no sync, because no test reads this file after a crash.
        super().transact(statements, sync=False)
        if recording is not None:
            with recording.lock:
                recording.add(Commit(list(statements), sync))
