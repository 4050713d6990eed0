"""Common parts of the records of consumer, share and streams groups: things of the store become values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import unpack
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from klamm_broker.groups.consumer.state import MemberState
from klamm_broker.internal_topics.record_source import CoordinatorRecord, RecordSource, Row, TopicIds, record_value

if TYPE_CHECKING:
    from klamm_broker.internal_topics.record_source import Encodes

Values: TypeAlias = Callable[[Row], Iterable[tuple[bytes, "Encodes | None"]]]
"""Returns the records of a row: pairs of key, and value or None."""

MEMBER_STATES: Final = {state: number for number, state in enumerate(MemberState)}
"""Kafka numbers the states in this order."""
_VERSION: Final = 0


def source(name: str, keys: tuple[str, ...], table: str, columns: str, values: Values) -> RecordSource:
    """Return a source whose things are rows of one table."""

    def to_records(rows: Iterable[Row], _topic_id: TopicIds) -> Iterator[CoordinatorRecord]:
        for row in rows:
            for key, value in values(row):
                yield CoordinatorRecord(row[0], key, None if value is None else record_value(_VERSION, value))

    names = ", ".join(keys)
    query = f"SELECT {names}, {columns} FROM {{changed}} LEFT JOIN {table} USING ({names})"  # noqa: S608
    return RecordSource(name, keys, (table,), query, to_records)


def as_hash(text: str) -> int:
    """Return the 64 bits of a hash of topics that a record has."""
    if not text:
        return 0
    number: int
    (number,) = unpack(">q", bytes.fromhex(text[:16]))
    return number


def by_topic(partitions: Mapping[str, Any]) -> Iterator[tuple[bytes, list[int]]]:
    """Return topic ids with partitions, from what the store has of an assignment."""
    return ((bytes.fromhex(topic), sorted(indexes)) for topic, indexes in sorted(partitions.items()))
