"""A workload for the coordinators: transactions, members of consumer groups, feature levels."""

from __future__ import annotations

from typing import Any

from klamm import ErrorCode
from klamm.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.end_txn import EndTxnRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm.wire.records import TRANSACTIONAL
from klamm_broker.features import TRANSACTION_VERSION
from tests.faults.crash_states.workload import CONSUMER_GROUP, SMALL, BatchProducer, Transaction, Workload

TRANSACTIONAL_GROUP = "transactional"
TIMEOUT_MS = 60_000
_BEFORE_V2, _V2 = 0, 2


class TransactionalProducer:
    """A client with a transactional id. `transaction_version` is that of KIP-890."""

    def __init__(self, work: Workload, transactional_id: str, transaction_version: int = _V2) -> None:
        self._work = work
        self.transactional_id = transactional_id
        self._is_v2 = transaction_version == _V2
        self.identity = (-1, -1)
        self._sequences: dict[Any, int] = {}
        self._members: set[Any] = set()
        self._open: Transaction | None = None

    def _is_now(self, identity: tuple[int, int]) -> None:
        if identity != self.identity:
            self.identity = identity
            self._sequences = {}

    def init(self) -> None:
        """Get the next epoch. An open transaction is aborted."""
        aborting = self._work.new_event("end", self.transactional_id, False)
        if self._open is not None:
            self._open.ends.append(aborting)
        with self._work.event("identity", self.transactional_id, None) as event:
            answer = self._work.harness.ask(InitProducerIdRequest(self.transactional_id, TIMEOUT_MS), 5)
            if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                answer = self._work.harness.ask(InitProducerIdRequest(self.transactional_id, TIMEOUT_MS), 5)
            self._work.check(answer)
            event.value = (answer.producer_id, answer.producer_epoch)
            self._is_now(event.value)
            aborting.acknowledged_at = len(self._work.recording)
            self._open = None

    def _transaction(self) -> Transaction:
        if self._open is None:
            self._open = Transaction(self.transactional_id)
            self._work.transactions.append(self._open)
            self._members = set()
        return self._open

    def produce(self, name: str, partition: int = 0, *, key: bytes | None = None) -> None:
        transaction = self._transaction()
        if not self._is_v2:
            self._add(name, partition)
        place = self._work.topics.get(name), partition
        sequence = self._sequences.get(place, 0)
        batch = {
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
            "base_sequence": sequence,
            "attributes": TRANSACTIONAL,
        }
        producer = BatchProducer(transaction, 12 if self._is_v2 else 11, batch)
        if self._work.produce_in(producer, name, partition, key=key) is not None:
            self._sequences[place] = sequence + 1

    def _add(self, name: str, partition: int) -> None:
        if (name, partition) in self._members:
            return
        with self._work.event("added", self.transactional_id, (name, partition)):
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.identity[0],
                v3_and_below_producer_epoch=self.identity[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name, [partition])],
            )
            (topic,) = self._work.harness.ask(request, 3).results_by_topic_v3_and_below
            error_code = topic.results_by_partition[0].partition_error_code
            self._work.check_code(error_code)
            self._members.add((name, partition))

    def commit_offset(self, name: str, offset: int) -> None:
        transaction = self._transaction()
        with self._work.event("transactional offset", (name, 0), offset) as event:
            if not self._is_v2:
                joining = AddOffsetsToTxnRequest(self.transactional_id, *self.identity, TRANSACTIONAL_GROUP)
                self._work.check(self._work.harness.ask(joining, 3))
            transaction.offsets.append(event)
            topics = [TxnOffsetCommitRequestTopic(name, partitions=[TxnOffsetCommitRequestPartition(0, offset)])]
            request = TxnOffsetCommitRequest(self.transactional_id, TRANSACTIONAL_GROUP, *self.identity, topics=topics)
            answer = self._work.harness.ask(request, 5 if self._is_v2 else 3)
            self._work.check(answer.topics[0].partitions[0])

    def end(self, *, committed: bool) -> None:
        """Commit or abort the transaction. After an error it stays open."""
        transaction = self._transaction()
        with self._work.event("end", self.transactional_id, committed) as event:
            transaction.ends.append(event)
            request = EndTxnRequest(self.transactional_id, *self.identity, committed)
            answer = self._work.check(self._work.harness.ask(request, 5 if self._is_v2 else 3))
            self._open = None
            if self._is_v2:
                identity = (answer.producer_id, answer.producer_epoch)
                now = len(self._work.recording)
                known = self._work.new_event("identity", self.transactional_id, identity)
                known.started_at, known.acknowledged_at = event.started_at, now
                self._is_now(identity)


def set_transaction_version(work: Workload, level: int) -> None:
    """Send UpdateFeatures, as an upgrade or a downgrade."""
    with work.event("feature", TRANSACTION_VERSION, level):
        kind = 1 if level == _V2 else 2
        request = UpdateFeaturesRequest(1000, [FeatureUpdateKey(TRANSACTION_VERSION, level, upgrade_type=kind)])
        work.check(work.harness.ask(request, 2))


UNKNOWN_EPOCH = "unknown"
"""The epoch of a member whose heartbeat was answered with an error. The change may nevertheless be written later."""


def heartbeat(work: Workload, member_id: str, epoch: int) -> None:
    """Send a heartbeat that joins the consumer group (epoch 0), stays in it, or leaves it (-1)."""
    with work.event("member", member_id, UNKNOWN_EPOCH if epoch >= 0 else None) as event:
        joins = {"subscribed_topic_names": ["ledger"], "rebalance_timeout_ms": 1000, "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(CONSUMER_GROUP, member_id, epoch, **(joins if epoch == 0 else {}))
        answer = work.check(work.harness.ask(request, 1))
        if epoch >= 0:
            event.value = answer.member_epoch


def run_coordinated(work: Workload) -> None:
    """Run transactions that commit, abort, stay open, or are fenced, on topics that are deleted, cut and compacted."""
    work.create("ledger", 2, **SMALL)
    work.create("passing", **SMALL)
    work.create("table", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **SMALL)
    first, second, old = (
        TransactionalProducer(work, "first"),
        TransactionalProducer(work, "second"),
        TransactionalProducer(work, "old", _BEFORE_V2),
    )
    for producer in (first, second, old):
        producer.init()
    heartbeat(work, "a", 0)
    for number, producer in enumerate((first, old, second)):
        producer.produce("ledger")
        producer.produce("ledger", 1)
        producer.produce("table", key=b"ab"[number % 2 : number % 2 + 1])
        producer.commit_offset("ledger", number + 1)
        producer.end(committed=number != 2)
    set_transaction_version(work, 1)
    work.set_group_config("consumer.session.timeout.ms", "46000")
    _mix(work, first, second, old)
    work.checkpoint()
    work.clean()
    work.restart()
    _go_on(work, first, second, old)
    work.close()


def _mix(
    work: Workload, first: TransactionalProducer, second: TransactionalProducer, old: TransactionalProducer
) -> None:
    """Run concurrent transactions on topics that change meanwhile."""
    first.produce("ledger")
    old.produce("ledger")
    second.produce("passing")
    work.produce("ledger")
    first.produce("passing")
    old.produce("table", key=b"a")
    work.delete("passing")
    work.create("passing", **SMALL)
    first.end(committed=True)
    second.produce("passing")
    second.commit_offset("ledger", 4)
    old.init()
    heartbeat(work, "b", 0)
    old.produce("ledger", 1)
    work.delete_records("ledger", 4)
    second.end(committed=True)
    old.end(committed=True)
    for key in (b"a", b"b"):
        first.produce("table", key=key)
    first.end(committed=False)
    work.flush()


def _go_on(
    work: Workload, first: TransactionalProducer, second: TransactionalProducer, old: TransactionalProducer
) -> None:
    """Continue the open transactions after a restart, and run the same again with other ends."""
    set_transaction_version(work, _V2)
    old.produce("ledger")
    old.produce("ledger", 1)
    old.commit_offset("ledger", 5)
    old.end(committed=True)
    old.produce("ledger")
    old.end(committed=False)
    heartbeat(work, "a", -1)
    first.produce("table", key=b"a")
    first.produce("passing")
    first.end(committed=True)
    work.set_group_config("consumer.session.timeout.ms", "47000")
    second.produce("table", key=b"b")
    work.flush()
    work.clean()
    work.checkpoint()
    second.produce("ledger", 1)
    second.commit_offset("ledger", 6)
    second.end(committed=True)
    second.produce("ledger")
    first.produce("ledger", 1)
