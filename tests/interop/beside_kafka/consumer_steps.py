"""Steps of members of a consumer group and their offsets. The outcomes of each step are compared between two servers.

Each server assigns partitions to members in its own order, so outcomes have counts and sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from klamm import ErrorCode
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from klamm.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.interop.beside_kafka.transaction_steps import Asker, settled
from tests.unit.transactions.transactions_harness import Producer

Step = tuple[str, Any]
GROUP, TOPIC, PARTITIONS = "epochs", "epochs-topic", 4
MEMBERS = "a" * 22, "b" * 22
PATIENCE_S = 20


class ConsumerSteps:
    """The steps on one server. TOPIC has PARTITIONS partitions."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._ask = target.client.call
        self._epochs = dict.fromkeys(MEMBERS, 0)
        self._owned: dict[str, list[int]] = {member: [] for member in MEMBERS}

    def _beat(self, member: str, *, reports: bool = True) -> None:
        epoch = self._epochs[member]
        owned = [RequestTopicPartitions(self._target.ids.of(TOPIC), self._owned[member])] if self._owned[member] else []
        request = ConsumerGroupHeartbeatRequest(
            GROUP,
            member,
            epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC] if epoch == 0 else None,
            topic_partitions=owned if reports else None,
        )
        answer = self._ask(request, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        self._epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self._owned[member] = [index for each in answer.assignment.topic_partitions for index in each.partitions]

    def _until(self, reached: Callable[[], bool], *beating: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline, (self._epochs, self._owned)
            for member in beating:
                self._beat(member)

    def _commit(self, member: str, epoch: int, *indexes: int) -> list[int]:
        partitions = [OffsetCommitRequestPartition(index, 0) for index in indexes]
        topic = OffsetCommitRequestTopic(topic_id=self._target.ids.of(TOPIC), partitions=partitions)
        answer = self._ask(OffsetCommitRequest(GROUP, epoch, member, topics=[topic]), 10)
        return [each.error_code for each in answer.topics[0].partitions]

    def _commit_by_name(self, member: str, epoch: int, *indexes: int) -> list[int]:
        topic = OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(each, 0) for each in indexes])
        answer = self._ask(OffsetCommitRequest(GROUP, epoch, member, topics=[topic]), 9)
        return [each.error_code for each in answer.topics[0].partitions]

    def _described(self) -> list[int]:
        """Return for each member how many partitions it has and how many it is to have."""
        (group,) = self._ask(ConsumerGroupDescribeRequest([GROUP]), 1).groups
        return [
            sum(len(each.partitions) for each in assignment.topic_partitions)
            for member in sorted(group.members, key=lambda each: each.member_id)
            for assignment in (member.assignment, member.target_assignment)
        ]

    def run(self) -> Iterator[Step]:
        yield from self._rebalance()
        yield from self._transaction()

    def _rebalance(self) -> Iterator[Step]:
        one, other = MEMBERS
        self._beat(one)
        self._until(lambda: len(self._owned[one]) == PARTITIONS, one)
        before = self._epochs[one]
        all_partitions = list(range(PARTITIONS))
        yield "the current epoch", self._commit(one, before, *all_partitions)
        self._beat(other)
        self._until(lambda: len(self._owned[one]) == PARTITIONS // 2, one)
        yield "an epoch that is being left", self._commit(one, before, *all_partitions)
        yield "described during a revocation", self._described()
        self._until(lambda: len(self._owned[other]) == PARTITIONS // 2 and self._epochs[one] > before, one, other)
        kept, gone, after = self._owned[one], self._owned[other], self._epochs[one]
        yield "epochs", after - before
        yield "described after it", self._described()
        for name, commit in (("id", self._commit), ("name", self._commit_by_name)):
            yield f"{name}: the epoch before, kept", commit(one, before, *kept)
            yield f"{name}: the epoch before, gone", commit(one, before, gone[0])
            yield f"{name}: the epoch before, both", commit(one, before, kept[0], gone[0])
            yield f"{name}: long before", commit(one, before - 2, *kept)
            yield f"{name}: -1", commit(one, -1, *kept)
            yield f"{name}: a later epoch", commit(one, after + 1, *kept)
            yield f"{name}: the epoch before, of the other", commit(other, before, *gone)
            yield f"{name}: the current epoch, of the other's", commit(one, after, *gone)
        yield from self._in_transactions(one, before, after, kept, gone)

    def _in_transactions(
        self, member: str, before: int, after: int, kept: list[int], gone: list[int]
    ) -> Iterator[Step]:
        producer = Producer(Asker(self._target.client), "epochs")  # type: ignore[arg-type]
        settled(producer.init)
        for name, member_id, epoch, indexes in (
            ("kept", member, before, kept),
            ("gone", member, before, gone),
            ("long before", member, before - 2, kept),
            ("a later epoch", member, after + 1, kept),
            ("no member", "", -1, kept),
            ("an unknown member", "nobody", after, kept),
        ):
            yield (
                f"in a transaction: {name}",
                [self._commit_in(producer, index, GROUP, member_id, epoch) for index in indexes],
            )
        yield "its end", settled(lambda: producer.end(committed=False))

    def _commit_in(self, producer: Any, index: int, group: str, member: str = "", epoch: int = -1) -> int:
        def attempt() -> int:
            topic = TxnOffsetCommitRequestTopic(TOPIC, partitions=[TxnOffsetCommitRequestPartition(index, 5)])
            request = TxnOffsetCommitRequest(
                producer.transactional_id, group, producer.id, producer.epoch, epoch, member, topics=[topic]
            )
            return int(self._ask(request, 5).topics[0].partitions[0].error_code)

        return settled(attempt)

    def _fetched(self, group: str) -> list[tuple[int, int]]:
        asked = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(TOPIC, partition_indexes=[0, 1])])
        (found,) = self._ask(OffsetFetchRequest(groups=[asked], require_stable=False), 9).groups
        return [(each.committed_offset, each.error_code) for each in found.topics[0].partitions]

    def _transaction(self) -> Iterator[Step]:
        """Delete an offset while a transaction tries to commit it."""
        group = "deleted-offsets"
        producer = Producer(Asker(self._target.client), "deletes")  # type: ignore[arg-type]
        settled(producer.init)
        yield "pending", [self._commit_in(producer, index, group) for index in (0, 1)]
        topic = OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(0)])
        deleted = self._ask(OffsetDeleteRequest(group, [topic]), 0)
        yield "deleted", (deleted.error_code, deleted.topics[0].partitions[0].error_code)
        yield "the end", settled(lambda: producer.end(committed=True))
        deadline = time.monotonic() + PATIENCE_S
        while self._fetched(group)[1][0] != 5 and time.monotonic() < deadline:
            time.sleep(0.02)
        yield "what is committed", self._fetched(group)
