"""Faults of a server on a bad machine, to be planted in the klamm of one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from klamm import KafkaError
from klamm_broker.log.partition_log import AppendResult, PartitionLog
from klamm_broker.storage.store import Store, StoreError
from tests.unit.testing.planted_groups import _replace


def acknowledge_what_the_log_refused() -> None:
    def build(append: Any) -> Any:
        def faulty(log: PartitionLog, records: Any, **options: Any) -> Any:
            try:
                return append(log, records, **options)
            except KafkaError:
                return AppendResult(log.end_offset, log.end_offset, -1, log.log_start_offset)

        return faulty

    _replace(PartitionLog, "append", build)


def acknowledge_what_the_store_refused() -> None:
    def build(transact: Any) -> Any:
        def faulty(store: Store, *given: Any, **options: Any) -> None:
            with suppress(StoreError):
                transact(store, *given, **options)

        return faulty

    _replace(Store, "transact", build)


FAULTS: dict[Callable[[], None], frozenset[str]] = {
    acknowledge_what_the_log_refused: frozenset({"lost_write", "inconsistent_offsets", "fractured_transaction"}),
    acknowledge_what_the_store_refused: frozenset({"not_linearizable"}),
}
"""Each fault with its anomalies. The checker must name at least one of them."""
