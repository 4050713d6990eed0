"""The content of the disk after a crash at some place of a recording.

After a kill, the disk has all changes, and the current write may be torn at any byte. After a power cut, each file has
its synced content, and any first part of its later writes: the last of these may be torn at any byte, or the file may
have its right length with zeros. Each directory has its entries at its last sync, and any first part of their later
changes, as journals keep them in order. The store has all commits up to the last synced one, and any first part of the
later ones.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from klamm_broker.storage.store import Store
from tests.faults.crash_states.recorded_disk import (
    ROOT,
    Commit,
    Create,
    FailedSync,
    Operation,
    Remove,
    Rename,
    Sync,
    Truncate,
    Write,
)

Choose: TypeAlias = Callable[[int], int]
"""A function from the number of unsynced changes to the number of those that are on the disk."""

Entries: TypeAlias = dict[str, int]
Tree: TypeAlias = "Mapping[str, bytes | Tree]"


def all_of(changes: int) -> int:
    return changes


def none_of(_changes: int) -> int:
    return 0


class _File:
    def __init__(self) -> None:
        self.synced = b""
        self.changes: list[Write | Truncate] = []
        self._lost = False

    def add(self, change: Write | Truncate) -> None:
        if isinstance(change, Truncate) and not change.size_bytes:
            self._lost = False
        self.changes.append(change)

    def sync(self) -> bool:
        """Sync the file. Return True if the disk now has all writes."""
        if self._lost:
            return False
        self.synced = self.content(len(self.changes))
        self.changes = []
        return True

    def sync_failed(self) -> None:
        """Note a failed sync. Its pages count as written but are not, and a later successful sync does not include
        them.
        """
        self._lost = bool(self.changes)

    def content(self, changes: int, torn_bytes: int | None = None) -> bytes:
        """Return the content after this number of changes, with only `torn_bytes` of the last one."""
        data = bytearray(self.synced)
        for number, change in enumerate(self.changes[:changes]):
            if isinstance(change, Truncate):
                del data[change.size_bytes :]
                data.extend(bytes(change.size_bytes - len(data)))
                continue
            kept = change.data if torn_bytes is None or number < changes - 1 else change.data[:torn_bytes]
            data.extend(bytes(max(0, change.position - len(data))))
            data[change.position : change.position + len(kept)] = kept
        return bytes(data)

    def zeroed(self) -> bytes:
        """Return the content in its full length, with zeros in place of unsynced bytes."""
        size_bytes = len(self.content(len(self.changes)))
        return self.synced[:size_bytes].ljust(size_bytes, b"\0")


class _Directory:
    def __init__(self) -> None:
        self.synced: Entries = {}
        self.changes: list[Create | Rename | Remove] = []

    def sync(self) -> bool:
        self.synced = self.entries(len(self.changes))
        self.changes = []
        return True

    def entries(self, changes: int) -> Entries:
        entries = dict(self.synced)
        for change in self.changes[:changes]:
            if isinstance(change, Create):
                entries[change.name] = change.node
            elif isinstance(change, Rename):
                entries[change.new] = entries.pop(change.old)
            else:
                del entries[change.name]
        return entries


class CrashedState:
    """A data directory after a crash: its files, and the number of the store's commits."""

    def __init__(self, tree: Tree, commits: int) -> None:
        self.tree = tree
        self.commits = commits

    def write_to(self, directory: Path) -> None:
        """Write the state to a directory, which may exist with other content."""
        shutil.rmtree(directory, ignore_errors=True)
        _write(directory, self.tree)


def _write(directory: Path, tree: Tree) -> None:
    directory.mkdir(parents=True)
    for name, content in tree.items():
        if isinstance(content, bytes):
            (directory / name).write_bytes(content)
        else:
            _write(directory / name, content)


class Disk:
    """The disk under a recording, operation by operation."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._directories: dict[int, _Directory] = {ROOT: _Directory()}
        self._commits = 0
        self._synced_commits = 0
        self.has_lied = False
        """True if a sync succeeded after a failed one, so that the disk lacks writes. Then there is no promise."""

    def do(self, operation: Operation) -> None:
        if isinstance(operation, Create):
            self._directories[operation.directory].changes.append(operation)
            if operation.is_directory:
                self._directories[operation.node] = _Directory()
            else:
                self._files[operation.node] = _File()
        elif isinstance(operation, Rename | Remove):
            self._directories[operation.directory].changes.append(operation)
        elif isinstance(operation, Write | Truncate):
            self._files[operation.node].add(operation)
        elif isinstance(operation, Sync):
            node = self._files.get(operation.node) or self._directories[operation.node]
            self.has_lied = not node.sync() or self.has_lied
        elif isinstance(operation, FailedSync):
            if operation.node in self._files:
                self._files[operation.node].sync_failed()
        else:
            self._commits += 1
            if operation.sync:
                self._synced_commits = self._commits

    def killed(self) -> CrashedState:
        """Return the state after a kill: all operations so far, and no others."""
        return CrashedState(self._tree(ROOT, all_of, lambda file: file.content(len(file.changes))), self._commits)

    def killed_within(self, write: Write, torn_bytes: int) -> CrashedState:
        """Return the state like `killed`, with a part of the next operation."""
        file = self._files[write.node]
        file.changes.append(write._replace(data=write.data[:torn_bytes]))
        try:
            return self.killed()
        finally:
            file.changes.pop()

    def without_power(self, entries: Choose, contents: Choose, *, zeroed: bool = False) -> CrashedState:
        """Return the state after a power cut: the synced part, and as much of the rest as the arguments choose."""

        def content(file: _File) -> bytes:
            return file.zeroed() if zeroed else file.content(contents(len(file.changes)))

        commits = self._synced_commits + entries(self._commits - self._synced_commits)
        return CrashedState(self._tree(ROOT, entries, content), commits)

    def without_power_at_random(self, chance: random.Random) -> CrashedState:
        """Return a random state like `without_power`, with writes torn at any byte."""

        def part(changes: int) -> int:
            return chance.randint(0, changes)

        def content(file: _File) -> bytes:
            if chance.random() < 0.1:
                return file.zeroed()
            changes = part(len(file.changes))
            last = file.changes[changes - 1] if changes else None
            torn_bytes = chance.randint(0, len(last.data)) if isinstance(last, Write) else None
            return file.content(changes, torn_bytes)

        commits = self._synced_commits + part(self._commits - self._synced_commits)
        return CrashedState(self._tree(ROOT, part, content), commits)

    def _tree(self, node: int, entries: Choose, content: Callable[[_File], bytes]) -> Tree:
        directory = self._directories[node]
        found = directory.entries(entries(len(directory.changes)))
        return {
            name: self._tree(child, entries, content) if child in self._directories else content(self._files[child])
            for name, child in found.items()
        }


class StoreFiles:
    """The maker of the store's file after a number of commits. The last file is kept, because many states share it."""

    def __init__(self, directory: Path, operations: Sequence[Operation], base: bytes | None = None) -> None:
        self._directory = directory
        self._base = base
        self._commits = [each.statements for each in operations if isinstance(each, Commit)]
        self._made: dict[int, bytes] = {}

    def content(self, commits: int) -> bytes:
        """Return the bytes of `klamm.db` after this number of commits."""
        if commits not in self._made:
            path = self._directory / "made.db"
            path.unlink(missing_ok=True)
            if self._base is not None:
                path.write_bytes(self._base)
            store = Store(path)
            store.open()
            store.submit([statement for each in self._commits[:commits] for statement in each])
            store.commit_pending()
            store.close()
            self._made[commits] = path.read_bytes()
        return self._made[commits]


def walk(operations: Iterable[Operation]) -> Iterable[tuple[int, Disk, Operation | None]]:
    """Yield each place at which a crash may happen: its index, the disk before the operation at it, and this
    operation.
    """
    disk = Disk()
    index = -1
    for index, operation in enumerate(operations):
        yield index, disk, operation
        disk.do(operation)
    yield index + 1, disk, None
