"""klamm with a planted fault: `python -m tests.interop.histories.planted FAULT serve …` serves with the fault.

If the checker finds the fault here, it would also find it in klamm.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from klamm.cli.main import main
from klamm.wire.records import ControlRecordType
from klamm_broker.handlers import k44_incremental_alter_configs as k44
from klamm_broker.log.partition_log import AppendResult, PartitionLog
from klamm_broker.log.producer_state import ProducerStateManager
from klamm_broker.log.reader import LogReader
from klamm_broker.transactions.markers import TransactionMarkers
from klamm_broker.transactions.transaction import Transaction

_CHOOSE = Random(os.getpid())


def _sometimes() -> bool:
    return _CHOOSE.random() < 0.15


def _replace(owner: Any, name: str, build: Callable[[Any], Callable[..., Any]]) -> None:
    setattr(owner, name, build(getattr(owner, name)))


def acknowledge_without_writing() -> None:
    def build(append: Any) -> Any:
        def faulty(log: PartitionLog, records: Any, **options: Any) -> Any:
            if _sometimes():
                return AppendResult(log.end_offset, log.end_offset, -1, log.log_start_offset)
            return append(log, records, **options)

        return faulty

    _replace(PartitionLog, "append", build)


def write_a_batch_twice() -> None:
    def build(append: Any) -> Any:
        def faulty(log: PartitionLog, records: Any, **options: Any) -> Any:
            again = bytes(records) if _sometimes() else None
            result = append(log, records, **options)
            return result if again is None else append(log, again, **options)

        return faulty

    _replace(PartitionLog, "append", build)
    _replace(ProducerStateManager, "check_batch", lambda _check: lambda _producers, _header: None)


def acknowledge_another_offset() -> None:
    def build(append: Any) -> Any:
        def faulty(log: PartitionLog, records: Any, **options: Any) -> Any:
            result = append(log, records, **options)
            return result._replace(base_offset=max(0, result.base_offset - 1)) if _sometimes() else result

        return faulty

    _replace(PartitionLog, "append", build)


def lose_the_last_batches_at_a_start() -> None:
    given = sys.argv[sys.argv.index("--data-dir") + 1]
    for path in Path(given).rglob("history-*/*.log"):
        os.truncate(path, path.stat().st_size * 3 // 4)


def serve_beyond_the_last_stable_offset() -> None:
    def build(read: Any) -> Any:
        def faulty(log: LogReader, *given: Any, **options: Any) -> Any:
            found = read(log, *given, **options | {"committed_only": False})
            return found._replace(aborted_transactions=[] if options.get("committed_only") else None)

        return faulty

    _replace(LogReader, "read", build)
    _replace(PartitionLog, "read", build)


def forget_what_was_aborted() -> None:
    _replace(LogReader, "_aborted_transactions", lambda _found: lambda *_given: [])


def skip_a_marker() -> None:
    def build(write: Any) -> Any:
        def faulty(markers: TransactionMarkers, marker: Any, missing: Any, on_written: Any) -> None:
            if len(missing) > 1 and _sometimes():
                missing.popitem()
            write(markers, marker, missing, on_written)

        return faulty

    _replace(TransactionMarkers, "_write", build)


def abort_in_one_partition() -> None:
    def build(append: Any) -> Any:
        def faulty(log: PartitionLog, kind: ControlRecordType, **options: Any) -> Any:
            return append(log, ControlRecordType.ABORT if _sometimes() else kind, **options)

        return faulty

    _replace(PartitionLog, "append_end_transaction_marker", build)


def commit_what_was_aborted() -> None:
    def build(append: Any) -> Any:
        def faulty(log: PartitionLog, kind: ControlRecordType, **options: Any) -> Any:
            return append(log, ControlRecordType.COMMIT if _sometimes() else kind, **options)

        return faulty

    _replace(PartitionLog, "append_end_transaction_marker", build)


def forget_a_fence() -> None:
    def build(check: Any) -> Any:
        def faulty(producers: ProducerStateManager, header: Any) -> Any:
            entry = producers.entries.get(header.producer_id)
            if entry is not None and header.producer_epoch < entry.producer_epoch:
                return None
            return check(producers, header)

        return faulty

    _replace(ProducerStateManager, "check_batch", build)
    _replace(Transaction, "check_producer", lambda _check: lambda *_given: None)


def skip_records_of_a_fetch() -> None:
    def build(read: Any) -> Any:
        def faulty(log: LogReader, fetch_offset: int, *given: Any, **options: Any) -> Any:
            ahead = min(fetch_offset + 3, max(fetch_offset, log.end_offset - 1)) if _sometimes() else fetch_offset
            return read(log, ahead, *given, **options)

        return faulty

    _replace(LogReader, "read", build)


def acknowledge_a_config_without_a_change() -> None:
    _replace(k44, "alter", lambda alter: lambda *given: None if _sometimes() else alter(*given))


FAULTS: dict[Callable[[], None], frozenset[str]] = {
    acknowledge_without_writing: frozenset({"inconsistent_offsets", "lost_write", "fractured_transaction"}),
    write_a_batch_twice: frozenset({"duplicate"}),
    acknowledge_another_offset: frozenset({"inconsistent_offsets", "duplicate", "external_non_monotonic_send"}),
    lose_the_last_batches_at_a_start: frozenset({"lost_write", "inconsistent_offsets"}),
    serve_beyond_the_last_stable_offset: frozenset({"precommitted_read", "aborted_read"}),
    forget_what_was_aborted: frozenset({"aborted_read"}),
    skip_a_marker: frozenset({"lost_write", "fractured_transaction", "torn_transaction"}),
    abort_in_one_partition: frozenset({"lost_write", "fractured_transaction", "torn_transaction"}),
    commit_what_was_aborted: frozenset({"aborted_read"}),
    forget_a_fence: frozenset({"aborted_read"}),
    skip_records_of_a_fetch: frozenset({"external_poll_skip", "int_poll_skip"}),
    acknowledge_a_config_without_a_change: frozenset({"not_linearizable"}),
}
"""Each fault with its anomalies. The checker must report at least one of them."""
BY_NAME = {fault.__name__: fault for fault in FAULTS}

if __name__ == "__main__":
    BY_NAME[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
