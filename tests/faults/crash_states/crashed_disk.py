"""What is on the disk after a crash, as far as a recording went.

Killed: all that was done, the write under way torn at any byte. Without power: of each file what was synced, and any
part of what was written to it since, in order, the last write torn at any byte, or the right length with zeros; of each
directory the entries as of its last sync, and any part of their later changes, in order, as journals keep them; of the
store all commits up to the last synced one, and any part of the later ones.
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
"""Of so many changes that were not synced, how many the disk has."""

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
        """Whether the disk has all that was written now."""
        if self._lost:
            return False
        self.synced = self.content(len(self.changes))
        self.changes = []
        return True

    def sync_failed(self) -> None:
        """The pages count as written, and are not: a later sync that succeeds says nothing of them."""
        self._lost = bool(self.changes)

    def content(self, changes: int, torn_bytes: int | None = None) -> bytes:
        """With so many changes, of the last of which only so many bytes."""
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
        """As long as it is, with zeros where nothing was synced."""
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
    """A data directory after a crash: its files, and how many commits of the store there are."""

    def __init__(self, tree: Tree, commits: int) -> None:
        self.tree = tree
        self.commits = commits

    def write_to(self, directory: Path) -> None:
        """Make the directory, which may be there with other things in it."""
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
        """A sync succeeded after one that had failed, and the disk does not have it all: there is no promise then."""

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
        """All that was done, and nothing else."""
        return CrashedState(self._tree(ROOT, all_of, lambda file: file.content(len(file.changes))), self._commits)

    def killed_within(self, write: Write, torn_bytes: int) -> CrashedState:
        """As `killed`, with a part of the next operation."""
        file = self._files[write.node]
        file.changes.append(write._replace(data=write.data[:torn_bytes]))
        try:
            return self.killed()
        finally:
            file.changes.pop()

    def without_power(self, entries: Choose, contents: Choose, *, zeroed: bool = False) -> CrashedState:
        """What was synced, and as much of the rest as is chosen."""

        def content(file: _File) -> bytes:
            return file.zeroed() if zeroed else file.content(contents(len(file.changes)))

        commits = self._synced_commits + entries(self._commits - self._synced_commits)
        return CrashedState(self._tree(ROOT, entries, content), commits)

    def without_power_at_random(self, chance: random.Random) -> CrashedState:
        """As `without_power`, all by chance, and writes torn at any byte."""

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
    """Makes the store's file as of some number of commits; the last one is kept, as many states share it."""

    def __init__(self, directory: Path, operations: Sequence[Operation], base: bytes | None = None) -> None:
        self._directory = directory
        self._base = base
        self._commits = [each.statements for each in operations if isinstance(each, Commit)]
        self._made: dict[int, bytes] = {}

    def content(self, commits: int) -> bytes:
        """The bytes of `klamm.db`."""
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
    """Each place where a crash may be: its index, the disk before the operation there, and that operation."""
    disk = Disk()
    index = -1
    for index, operation in enumerate(operations):
        yield index, disk, operation
        disk.do(operation)
    yield index + 1, disk, None
