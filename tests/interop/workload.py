"""The records that every client produces and reads back, and the checks of what was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

PARTITIONS = 3
RECORDS = 40_000
KEYS = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PADDING = "the same words again and again, so that a codec has something to do"

KeyValue = tuple[str, str]


class Consumed(NamedTuple):
    """A record as a consumer read it."""

    partition: int
    offset: int
    key: str
    value: str

    @property
    def number(self) -> int:
        """The record's place in the order in which all records were produced."""
        return int(self.value.split(" ", 1)[0])


def records(count: int = RECORDS, alarms: Mapping[int, Callable[[], object]] | None = None) -> Iterator[KeyValue]:
    """Yield key and value of each record, in order. `alarms[n]` is called just before record n."""
    for number in range(count):
        if alarms and number in alarms:
            alarms[number]()
        key = f"key-{number % KEYS}"
        yield key, f"{number} {key} {_PADDING}"


def check_read_back(consumed: Iterable[Consumed], count: int = RECORDS) -> None:
    """Check that each record was read once, with its key, without gaps in offsets, in the order of each partition."""
    next_offset = Counter[int]()
    last_number: dict[int, int] = {}
    partition_of_key: dict[str, int] = {}
    seen = 0
    for record in consumed:
        number = record.number
        assert record.offset == next_offset[record.partition], f"{record} where offset {next_offset} was due"
        assert number > last_number.get(record.partition, -1), f"{record} came after number {last_number}"
        assert record.key == f"key-{number % KEYS}", record
        assert partition_of_key.setdefault(record.key, record.partition) == record.partition, record
        next_offset[record.partition] += 1
        last_number[record.partition] = number
        seen += 1
    assert seen == count, f"{seen} records of {count}; the last numbers are {last_number}"
    assert len(next_offset) == PARTITIONS, next_offset


def check_at_least_once(shares: Iterable[Iterable[Consumed]], repeatable: int, count: int = RECORDS) -> None:
    """Check that the members of a group together read every record, and at most `repeatable` of them again."""
    times = Counter(record.number for share in shares for record in share)
    missing = sorted(set(range(count)) - times.keys())
    assert not missing, f"{len(missing)} records were lost, the first: {missing[:5]}"
    repeated = times.total() - len(times)
    assert repeated <= repeatable, f"{repeated} records were read again"
