"""Tests of the index files that a recovery writes."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.indexes import AbortedTransaction, TransactionIndex

FIRST, SECOND, OTHER = (AbortedTransaction(number, number, number + 1, number + 1) for number in (1, 3, 5))


class NotedCalls(FileOperations):
    """Records the calls that change a file."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def pwrite(self, descriptor: int, data: Any, position: int) -> int:
        self.calls.append(("write", position))
        return super().pwrite(descriptor, data, position)

    def ftruncate(self, descriptor: int, size_bytes: int) -> None:  # type: ignore[override]
        self.calls.append(("cut", size_bytes))
        super().ftruncate(descriptor, size_bytes)


@pytest.mark.parametrize(
    ("rebuilt", "calls"),
    [
        ([FIRST, SECOND], []),
        ([FIRST, SECOND, OTHER], [("write", 68)]),
        ([FIRST], [("cut", 34)]),
        ([FIRST, OTHER], [("cut", 43), ("write", 43)]),
    ],
)
def test_a_rebuilt_index_keeps_the_part_of_its_file_that_is_equal(
    tmp_path: Path, rebuilt: list[AbortedTransaction], calls: list[Any]
) -> None:
    """The equal part was synced. A power cut must not lose it, because recovery may not read this segment again."""
    path = tmp_path / "00000000000000000000.txnindex"
    operations = NotedCalls()
    index = TransactionIndex(path, operations, Lock(), is_new=True)
    for each in (FIRST, SECOND):
        index.append(each)
    index.flush(sync=True)
    operations.calls.clear()
    index = TransactionIndex(path, operations, Lock(), is_new=False)
    index.reset()
    for each in rebuilt:
        index.append(each)
    index.flush()
    assert operations.calls == calls
    assert list(TransactionIndex(path, operations, Lock(), is_new=False).aborted()) == rebuilt
