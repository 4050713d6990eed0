"""Transactional ids as records of `__transaction_state`: `TRANSACTIONS`, for `sources.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from klamm.wire.coordinator_records.transaction_log import (
    RECORD_TYPE,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from klamm_broker.internal_topics.record_source import (
    CoordinatorRecord,
    RecordSource,
    Row,
    TopicIds,
    record_key,
    record_value,
)
from klamm_broker.transactions.state import TransactionState

_VERSION: Final = 1
_STATUS: Final = {state.value: number for number, state in enumerate(TransactionState)}
"""The states in the order of Kafka's numbers."""
_EMPTY: Final = TransactionState.EMPTY.value


def _records(rows: Iterable[Row], _topic_id: TopicIds) -> Iterator[CoordinatorRecord]:
    for transactional_id, of_id in groupby(rows, itemgetter(0)):
        first, *others = of_id
        value = None if first[1] is None else record_value(_VERSION, _value(first, (each[-1] for each in others)))
        yield CoordinatorRecord(transactional_id, record_key(RECORD_TYPE, TransactionLogKey(transactional_id)), value)


def _value(first: Row, added: Iterable[str]) -> TransactionLogValue:
    producer_id, previous_id, next_id, epoch, timeout_ms, status, partitions, start_ms, update_ms, version = first[1:11]
    by_topic: dict[str, set[int]] = {}
    for text in (partitions, first[11], *added):
        for topic, indexes in json.loads(text or "{}").items():
            by_topic.setdefault(topic, set()).update(indexes)
    return TransactionLogValue(
        producer_id,
        previous_producer_id=previous_id,
        next_producer_id=next_id,
        producer_epoch=epoch,
        transaction_timeout_ms=timeout_ms,
        transaction_status=_STATUS[status],
        transaction_partitions=None
        if status == _EMPTY
        else [PartitionsSchema(topic, sorted(indexes)) for topic, indexes in sorted(by_topic.items())],
        transaction_last_update_timestamp_ms=update_ms,
        transaction_start_timestamp_ms=start_ms,
        client_transaction_version=version,
    )


TRANSACTIONS: Final = RecordSource(
    "transactions",
    ("transactional_id",),
    ("transactions", "added_partitions"),
    "SELECT transactional_id, producer_id, previous_producer_id, next_producer_id, producer_epoch, timeout_ms, state,"
    " transactions.partitions, start_ms, update_ms, client_version, added_partitions.partitions"
    " FROM {changed} LEFT JOIN transactions USING (transactional_id)"
    " LEFT JOIN added_partitions USING (transactional_id) ORDER BY transactional_id, position",
    _records,
)
