"""Checks of the end of a transaction: retries, fenced producers, wrong states.

Follows `TransactionCoordinator.endTransaction` of Kafka 4.3. With `transaction.version` 2 each end increases the epoch,
so a request with the previous epoch is a retry. A request with the current epoch is new, and may abort a transaction
that has written nothing.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError
from klamm_broker.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TransactionState,
)
from klamm_broker.transactions.transaction import MAX_EPOCH, Transaction, bumps_epoch

_DONE = {COMPLETE_COMMIT: True, COMPLETE_ABORT: False}
_PREPARED = {PREPARE_COMMIT: True, PREPARE_ABORT: False}


def check_end(
    transaction: Transaction, producer_id: int, producer_epoch: int, client_version: int, *, committed: bool
) -> bool:
    """Return True if there is a transaction to end, and False if it has already ended in the same way. The caller holds
    the transaction's lock.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    record = transaction.record
    raises_epoch = bumps_epoch(client_version)
    is_retry = raises_epoch and _is_retry(transaction, producer_id, producer_epoch)
    if record.producer_id != producer_id and not is_retry:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_current = producer_epoch == record.producer_epoch
    if raises_epoch and record.state in PREPARED:
        is_current = False
    if not is_current and not (is_retry and record.state not in (ONGOING, EMPTY)):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.pending is not None:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if record.state is ONGOING:
        return True
    if record.state in PREPARED:
        if _PREPARED[record.state] is committed:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise _wrong_state(record.state)
    if raises_epoch and not is_retry:
        if not committed:
            return True
        raise _wrong_state(record.state)
    if _DONE.get(record.state) is committed:
        return False
    raise _wrong_state(record.state)


def _is_retry(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Return True if the producer repeats a request because it lost the response with the new epoch or producer id."""
    record = transaction.record
    if record.producer_id == producer_id:
        return record.producer_epoch == producer_epoch + 1
    return record.previous_producer_id == producer_id and producer_epoch == MAX_EPOCH - 1 and record.producer_epoch == 0


def _wrong_state(state: TransactionState) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction is {state.value}")
