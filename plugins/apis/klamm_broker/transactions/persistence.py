"""The rows of transactional ids in the store. `TransactionRegistry` submits the statements, and loads the ids at the
start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from klamm_broker.storage.store import Statement, Store
from klamm_broker.transactions.state import TransactionState
from klamm_broker.transactions.transaction import TopicPartition, TransactionRecord

_FIELDS: Final = TransactionRecord._fields
_COLUMNS: Final = f"transactional_id, {', '.join(_FIELDS)}"
_PUT: Final = f"INSERT OR REPLACE INTO transactions ({_COLUMNS}) VALUES (?{', ?' * len(_FIELDS)})"
_DELETE: Final = "DELETE FROM transactions WHERE transactional_id = ?"
_SELECT: Final = f"SELECT {_COLUMNS} FROM transactions"  # noqa: S608
_ADD: Final = "INSERT OR REPLACE INTO added_partitions (transactional_id, position, partitions) VALUES (?, ?, ?)"
_DELETE_ADDED: Final = "DELETE FROM added_partitions WHERE transactional_id = ?"
_SELECT_ADDED: Final = "SELECT transactional_id, partitions FROM added_partitions"


def put(transactional_id: str, record: TransactionRecord) -> Statement:
    """Return the statement that writes the record of a transactional id."""
    row = {**record._asdict(), "state": record.state.value, "partitions": _text_of(record.partitions)}
    return (_PUT, (transactional_id, *row.values()))


def add(transactional_id: str, position: int, partitions: frozenset[TopicPartition]) -> Statement:
    """Return the statement that adds partitions to an open transaction after its first `position` partitions."""
    return (_ADD, (transactional_id, position, _text_of(partitions)))


def delete_added(transactional_id: str) -> Statement:
    """Return the statement that deletes the rows of `add`, because the record has the partitions, or the transaction is
    over.
    """
    return (_DELETE_ADDED, (transactional_id,))


def delete(transactional_id: str) -> Statement:
    """Return the statement that deletes a transactional id."""
    return (_DELETE, (transactional_id,))


def load(store: Store) -> Iterator[tuple[str, TransactionRecord]]:
    """Yield all transactional ids with their records. Raises StoreError."""
    added: dict[str, list[str]] = {}
    for transactional_id, partitions in store.read(_SELECT_ADDED):
        added.setdefault(transactional_id, []).append(partitions)
    for transactional_id, *values in store.read(_SELECT):
        row = dict(zip(_FIELDS, values, strict=True))
        partitions = _partitions_of(row["partitions"], *added.get(transactional_id, ()))
        row |= {"state": TransactionState(row["state"]), "partitions": frozenset(partitions)}
        yield transactional_id, TransactionRecord(**row)


def _text_of(partitions: frozenset[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return json.dumps(by_topic, separators=(",", ":"))


def _partitions_of(*texts: str) -> Iterator[TopicPartition]:
    for text in texts:
        for topic, indexes in json.loads(text).items():
            for index in indexes:
                yield topic, index
