"""`RecordSource`: the rows of one type of object in the store, and the coordinator records that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct, unpack
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from klamm_broker.groups.targeted_members import MemberState

MEMBER_STATES: Final = {state: number for number, state in enumerate(MemberState)}
"""The states in the order of Kafka's numbers."""
_VERSION: Final = 0

Row: TypeAlias = tuple[Any, ...]

Values: TypeAlias = Callable[[Row], Iterable[tuple[bytes, "Encodes | None"]]]
"""A function that returns the records of a row, as pairs of key and value (or None)."""

TopicIds: TypeAlias = Callable[[str], bytes]
"""A function that returns the id of a topic; 16 zero bytes if no topic has this name."""

_pack_int16 = Struct(">h").pack


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic. Without a value it is a tombstone. The hash of `owner` gives the partition."""

    owner: str
    key: bytes
    value: bytes | None


class RecordSource(NamedTuple):
    """One type of object that the store has and an internal topic shows.

    `keys` are the columns that identify an object. `tables` have these columns; a change of their rows is a change of
    the object. `query` returns one or several rows for each object in `{changed}`: its keys, and other columns, which
    are null if the store does not have the object. The first `owner_keys` of `keys` determine the partition, through
    the hash of the `owner` that is made from them.
    """

    name: str
    keys: tuple[str, ...]
    tables: tuple[str, ...]
    query: str
    to_records: Callable[[Iterable[Row], TopicIds], Iterator[CoordinatorRecord]]
    owner_keys: int = 1
    owner: Callable[[Row], str] = lambda row: str(row[0])

    def owners(self) -> str:
        """Return the query for the owners. The hash of an owner determines the partition."""
        columns = ", ".join(self.keys[: self.owner_keys])
        return " UNION ".join(f"SELECT DISTINCT {columns} FROM {table}" for table in self.tables)  # noqa: S608

    def rows_of_owner(self) -> str:
        """Return the query for all objects of one owner. Its parameters are the owner's keys, once for each table."""
        columns = ", ".join(self.keys)
        condition = " AND ".join(f"{key} = ?" for key in self.keys[: self.owner_keys])
        selects = (f"SELECT {columns} FROM {table} WHERE {condition}" for table in self.tables)  # noqa: S608
        return self.query.format(changed=f"({' UNION '.join(selects)})")


class Encodes(Protocol):
    """A key or a value of a record."""

    def encode(self, version: int) -> bytes:
        """Return the bytes in a version of the format."""


def record_key(record_type: int, key: Encodes) -> bytes:
    """Return the bytes of a key, which begin with the type of the record."""
    return _pack_int16(record_type) + key.encode(0)


def record_value(version: int, value: Encodes) -> bytes:
    """Return the bytes of a value, which begin with the version."""
    return _pack_int16(version) + value.encode(version)


def source(name: str, keys: tuple[str, ...], table: str, columns: str, values: Values) -> RecordSource:
    """Return a source whose objects are the rows of one table."""

    def to_records(rows: Iterable[Row], _topic_id: TopicIds) -> Iterator[CoordinatorRecord]:
        for row in rows:
            for key, value in values(row):
                yield CoordinatorRecord(row[0], key, None if value is None else record_value(_VERSION, value))

    names = ", ".join(keys)
    query = f"SELECT {names}, {columns} FROM {{changed}} LEFT JOIN {table} USING ({names})"  # noqa: S608
    return RecordSource(name, keys, (table,), query, to_records)


def as_hash(text: str) -> int:
    """Return a digest of topics as the 64-bit integer that records contain."""
    if not text:
        return 0
    number: int
    (number,) = unpack(">q", bytes.fromhex(text[:16]))
    return number


def by_topic(partitions: Mapping[str, Any]) -> Iterator[tuple[bytes, list[int]]]:
    """Return the topic ids with partitions from an assignment in the store."""
    return ((bytes.fromhex(topic), sorted(indexes)) for topic, indexes in sorted(partitions.items()))
