"""Keyed records whose values tell what they are, and the checks that all of them arrived in order."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

KEYS = 997


class Record(NamedTuple):
    """What is produced. The value carries the key and the running number."""

    key: str
    value: str


class Consumed(NamedTuple):
    """What came back."""

    partition: int
    offset: int
    key: str
    value: str


def records(count: int, first: int = 0) -> Iterator[Record]:
    """Records numbered from `first`, over `KEYS` keys in turn; about 60 bytes each, half of them the same in all."""
    for number in range(first, first + count):
        key = f"key-{number % KEYS:03}"
        yield Record(key, f"{key}|{number:07}|the quick brown fox jumps over it")


def number_of(value: str) -> int:
    """The running number that a value carries."""
    return int(value.split("|")[1])


def paced(source: Iterable[Record], per_second: int, chunk: int = 100) -> Iterator[Record]:
    """The same records at a steady rate, in small bursts, so that something can happen in their middle."""
    source = iter(source)
    due = time.monotonic()
    while burst := list(islice(source, chunk)):
        time.sleep(max(0.0, due - time.monotonic()))
        due += chunk / per_second
        yield from burst


def check_log(consumed: Iterable[Consumed], count: int, partitions: int, *, once: bool = True) -> None:
    """Every record from 0 to `count` is there; each key in one partition and in order; offsets ascend without a gap.

    `once=False` allows repeated records, which a producer that is not idempotent may leave behind when it retries.
    """
    offsets: dict[int, list[int]] = defaultdict(list)
    numbers: dict[str, list[int]] = defaultdict(list)
    partition_of: dict[str, int] = {}
    for record in consumed:
        offsets[record.partition].append(record.offset)
        assert record.value.startswith(f"{record.key}|"), record
        assert partition_of.setdefault(record.key, record.partition) == record.partition, f"{record.key} moved"
        numbers[record.key].append(number_of(record.value))
    assert set(offsets) == set(range(partitions))
    for partition, seen in offsets.items():
        assert seen == list(range(seen[0], seen[0] + len(seen))), f"partition {partition} has gaps in its offsets"
    found = {number for many in numbers.values() for number in many}
    assert found == set(range(count)), f"{count - len(found)} of {count} records are missing"
    if once:
        assert sum(map(len, numbers.values())) == count, "records are repeated"
        assert all(many == sorted(many) for many in numbers.values()), "a key's records are out of order"
