"""`TransactionRegistry`: all transactional ids of a broker, and the writes of their transitions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from klamm import ErrorCode, KafkaError, clipped
from klamm.wire.records import NO_PRODUCER_ID
from klamm_broker.limits.ledger import Ledger
from klamm_broker.limits.owners import TRANSACTIONS as OWNERS
from klamm_broker.storage.store import Statement, Store, StoreError
from klamm_broker.transactions import persistence
from klamm_broker.transactions.state import ONGOING, PREPARE_ABORT
from klamm_broker.transactions.transaction import TopicPartition, Transaction, TransactionRecord

log = logging.getLogger("klamm.broker.transactions")

Written: TypeAlias = Callable[[ErrorCode], None]
"""A callback that the store's thread calls once, with NONE, or with NOT_COORDINATOR if the write failed."""


class TransactionRegistry:
    """All transactional ids of a broker. Any thread may call it."""

    def __init__(self, store: Store, ledger: Ledger | None = None) -> None:
        self._store = store
        self._ledger = ledger or Ledger("transactional ids")
        # Protects the map of transactions; each has its own lock.
        self._lock = threading.Lock()
        self._transactions: dict[str, Transaction] = {}

    def load(self) -> None:
        """Load all transactional ids from the store. Raises StoreError."""
        self._transactions = {key: Transaction(key, record) for key, record in persistence.load(self._store)}
        owners = OWNERS.forget_all_but(self._store, set(self._transactions))
        for transaction in self._transactions.values():
            transaction.owner = owners.get(transaction.transactional_id, "")
            self._recount(transaction)

    def abort_open(self, client_version: int, now_ms: int) -> None:
        """Decide, durably, that all open transactions abort, and fence their producers. Raises StoreError."""
        decided = []
        for transaction in self.all():
            if transaction.state is ONGOING:
                log.info("%s: open when the machine stopped, aborting", clipped(transaction.transactional_id))
                transaction.fence(client_version)
                decided.append((transaction, transaction.end(PREPARE_ABORT, client_version, NO_PRODUCER_ID, now_ms)))
        if decided:
            self._store.write_and_wait(
                [persistence.put(each.transactional_id, record) for each, record in decided]
                + [persistence.delete_added(each.transactional_id) for each, _record in decided]
            )
        for transaction, record in decided:
            transaction.complete(record)
            self._recount(transaction)

    def get(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of the id, or None if the id is unknown."""
        return self._transactions.get(transactional_id)

    def find(self, transactional_id: str) -> Transaction:
        """Return the transaction of the id.

        Raises KafkaError: INVALID_REQUEST for an empty id, INVALID_PRODUCER_ID_MAPPING for an unknown one.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def add(self, transactional_id: str, record: TransactionRecord, owner: str = "") -> Transaction:
        """Add a transactional id, without writing it. If another thread has added it, return the existing one.

        Raises KafkaError(POLICY_VIOLATION) if there is no room for a new id.
        """
        with self._lock:
            known = self._transactions.get(transactional_id)
            if known is not None:
                return known
            new = Transaction(transactional_id, record, owner)
            new.counted_bytes = new.state_bytes
            self._ledger.require(owner, new.counted_bytes)
            self._transactions[transactional_id] = new
        if owner:
            self._store.submit([OWNERS.put(transactional_id, owner)])
        return new

    def require_room(self, transaction: Transaction, partitions: int) -> None:
        """Reserve room for partitions that are about to be written. The caller holds the transaction's lock.

        Raises KafkaError(POLICY_VIOLATION) if there is no room for them.
        """
        more_bytes = transaction.bytes_of(len(transaction.record.partitions) + partitions) - transaction.counted_bytes
        if more_bytes > 0:
            if not self._ledger.reserve(transaction.owner, more_bytes, in_use=True):
                raise self._ledger.refusal()
            transaction.counted_bytes += more_bytes

    def _recount(self, transaction: Transaction) -> None:
        """Count a transaction again after its partitions have changed. The caller holds its lock."""
        before, transaction.counted_bytes = transaction.counted_bytes, transaction.state_bytes
        if before != transaction.counted_bytes:
            self._ledger.add(transaction.owner, transaction.counted_bytes - before)

    def all(self) -> list[Transaction]:
        """Return all transactions."""
        with self._lock:
            return list(self._transactions.values())

    def write(
        self,
        transaction: Transaction,
        record: TransactionRecord,
        then: Written,
        statements: Collection[Statement] = (),
        *,
        sync: bool = True,
    ) -> None:
        """Write the record of a pending transition, and complete the transition once it is durable. The caller holds
        its lock.

        Further `statements` are committed together with the record. Without `sync`, a power failure may undo the write
        until a later write is synced.
        """
        all_statements = [persistence.put(transaction.transactional_id, record), *statements]
        if transaction.state is ONGOING:
            all_statements.append(persistence.delete_added(transaction.transactional_id))
        self._submit(transaction, record, then, all_statements, sync=sync)

    def write_added(
        self, transaction: Transaction, record: TransactionRecord, new: frozenset[TopicPartition], then: Written
    ) -> None:
        """Write only the `new` partitions of an open transaction, otherwise like `write`."""
        position = len(transaction.record.partitions)
        added = persistence.add(transaction.transactional_id, position, new)
        self._submit(transaction, record, then, [added], sync=True)

    def _submit(
        self,
        transaction: Transaction,
        record: TransactionRecord,
        then: Written,
        statements: Sequence[Statement],
        *,
        sync: bool,
    ) -> None:
        def on_durable(error: StoreError | None) -> None:
            with transaction.lock:
                if error is None:
                    transaction.complete(record)
                else:
                    log.error("%s: cannot be written: %s", clipped(transaction.transactional_id), error)
                    transaction.give_up()
                self._recount(transaction)
            then(ErrorCode.NONE if error is None else ErrorCode.NOT_COORDINATOR)

        self._store.submit(statements, on_durable, sync=sync or None)

    def remove(self, transaction: Transaction) -> None:
        """Remove a transactional id whose transition to DEAD is pending. The caller holds its lock."""

        def on_durable(error: StoreError | None) -> None:
            if error is not None:
                with transaction.lock:
                    transaction.give_up()
                return
            # The transition stays pending, so that a request that has found the id before gets CONCURRENT_TRANSACTIONS
            # and tries again.
            with self._lock:
                if self._transactions.pop(transaction.transactional_id, None) is not None:
                    self._ledger.add(transaction.owner, -transaction.counted_bytes)

        name = transaction.transactional_id
        self._store.submit([persistence.delete(name), OWNERS.delete(name)], on_durable)
