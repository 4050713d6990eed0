"""Transactional ids in the store, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from klamm_broker.storage.store import Statement, Store
from klamm_broker.transactions.state import TransactionState
from klamm_broker.transactions.transaction import TopicPartition, TransactionRecord

_COLUMNS: Final = (
    "transactional_id, producer_id, previous_producer_id, next_producer_id, producer_epoch, last_producer_epoch,"
    " timeout_ms, state, partitions, start_ms, update_ms, client_version"
)
_PUT: Final = f"INSERT OR REPLACE INTO transactions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE: Final = "DELETE FROM transactions WHERE transactional_id = ?"
_SELECT: Final = f"SELECT {_COLUMNS} FROM transactions"  # noqa: S608
_ADD: Final = "INSERT OR REPLACE INTO added_partitions (transactional_id, position, partitions) VALUES (?, ?, ?)"
_DELETE_ADDED: Final = "DELETE FROM added_partitions WHERE transactional_id = ?"
_SELECT_ADDED: Final = "SELECT transactional_id, partitions FROM added_partitions"


def put(transactional_id: str, record: TransactionRecord) -> Statement:
    """Return the statement that writes the record of a transactional id."""
    return (
        _PUT,
        (
            transactional_id,
            record.producer_id,
            record.previous_producer_id,
            record.next_producer_id,
            record.producer_epoch,
            record.last_producer_epoch,
            record.timeout_ms,
            record.state.value,
            _text_of(record.partitions),
            record.start_ms,
            record.update_ms,
            record.client_version,
        ),
    )


def add(transactional_id: str, position: int, partitions: frozenset[TopicPartition]) -> Statement:
    """Return the statement that adds partitions to an open transaction after its first `position` partitions."""
    return (_ADD, (transactional_id, position, _text_of(partitions)))


def delete_added(transactional_id: str) -> Statement:
    """Return the statement that deletes the rows of `add`: the record has the partitions, or the transaction is
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
    for (
        transactional_id,
        producer_id,
        previous_producer_id,
        next_producer_id,
        producer_epoch,
        last_producer_epoch,
        timeout_ms,
        state,
        partitions,
        start_ms,
        update_ms,
        client_version,
    ) in store.read(_SELECT):
        yield (
            transactional_id,
            TransactionRecord(
                producer_id=producer_id,
                timeout_ms=timeout_ms,
                update_ms=update_ms,
                producer_epoch=producer_epoch,
                last_producer_epoch=last_producer_epoch,
                previous_producer_id=previous_producer_id,
                next_producer_id=next_producer_id,
                state=TransactionState(state),
                partitions=frozenset(_partitions_of(partitions, *added.get(transactional_id, ()))),
                start_ms=start_ms,
                client_version=client_version,
            ),
        )


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
