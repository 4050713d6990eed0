"""Histories of a server that stops and is killed, with static members and producers that copy each record once.

`python -m` prints the digest of a seed's run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any, Final

from klamm import ErrorCode
from klamm.testing import SimulatedServer
from klamm.testing.histories import Anomaly
from klamm.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_heartbeat,
    end_txn,
    offset_fetch,
    txn_offset_commit,
)
from tests.unit.testing import simulated_groups as groups
from tests.unit.testing.simulated_admins import admin
from tests.unit.testing.simulated_clients import Ask, Driven, Workload, drive, partition_name
from tests.unit.testing.simulated_histories import (
    PARTITIONS,
    TIMEOUT_MS,
    all_records,
    consumer,
    idempotent,
    last,
    new_producer,
    paced,
    plain,
    records_from,
    transactional,
)
from tests.unit.testing.simulated_script import TOPIC, fetch_request, produce_request

COPIES: Final = "copies"
"""The topic with a copy of each record of `TOPIC`, in the partition with the same number."""
COPIERS: Final = "copiers"
_OLD: Final = (9, 3, 3)
_NEW: Final = (12, 5, 5)
"""Versions of Produce, TxnOffsetCommit and EndTxn: before KIP-890, and since then. The later ones add partitions."""
_STARTS_AGAIN: Final = -2


class _Static(groups.Owner):
    """A member that may be static.

    Then a new process replaces it with its instance id, and the old one commits once more.
    """

    def leave(self) -> Ask:
        if self.instance_id is None or not self.owned or self.work.choose.random() < 0.3:
            yield from super().leave()
            return
        before = self.member_id, self.epoch, self.work.choose.choice(self.owned)
        self.give_up()
        yield from self.start_again()
        yield from self.remain()
        if self.epoch > 0:
            yield from self._commit_late(*before)

    def start_again(self) -> Ask:
        """Become a new process with the same instance id."""
        raise NotImplementedError

    def _commit_late(self, member_id: str, epoch: int, partition: int) -> Ask:
        """Commit as the process that was replaced. This commit must not be visible."""
        offset = next(self.work.values)
        register = {"register": f"{self.group} {groups.MOVED}-{partition}", "value": offset}
        with self.work.record.operation(f"{self.process}-late", "set", register) as call:
            call.fail()
            yield self.commit_request(member_id, epoch, partition, offset), self.commit_version


class StaticClassic(_Static, groups.Classic):
    """A static member of a classic group (KIP-345)."""

    def start_again(self) -> Ask:
        self.member_id, self.epoch = "", -1
        yield from ()


class StaticConsumer(_Static, groups.Consumer):
    """A static member of a consumer group (KIP-848)."""

    def start_again(self) -> Ask:
        yield (
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
                self.group, self.member_id, _STARTS_AGAIN, self.instance_id
            ),
            1,
        )
        self.member_id, self.epoch = groups.new_member_id(self.work), 0


def _answered(request: Any, version: int, error_of: Callable[[Any], int]) -> Generator[Any, Any, int]:
    """Repeat until the answer's error is not CONCURRENT_TRANSACTIONS. Return the error."""
    while True:
        response = yield request, version
        if response is not None and (error := error_of(response)) != ErrorCode.CONCURRENT_TRANSACTIONS:
            return error
        yield 10


def _position(partition: int) -> Generator[Any, Any, int]:
    """Return the offset up to which a partition has been copied."""
    topic = offset_fetch.OffsetFetchRequestTopics(TOPIC, partition_indexes=[partition])
    wanted = offset_fetch.OffsetFetchRequestGroup(COPIERS, topics=[topic])
    while True:
        response = yield offset_fetch.OffsetFetchRequest(groups=[wanted], require_stable=True), 8
        if response is not None and not response.groups[0].error_code:
            found = response.groups[0].topics[0].partitions[0]
            if not found.error_code:
                return max(0, found.committed_offset)
        yield 20


def _transactional_id(partition: int) -> str:
    return f"copy-{partition}"


def copier(work: Workload, partition: int, operations: int) -> Ask:
    """Copy records together with their offset, in transactions. Another producer with the same name fences this one."""
    for _ in range(operations):
        name = _transactional_id(partition)
        mine = yield from new_producer(name)
        producer = name, mine.producer_id, mine.producer_epoch
        at = yield from _position(partition)
        response = yield fetch_request(partition, at, max_wait_ms=20), 12
        if response is not None:
            found, end = records_from(response.responses[0].partitions[0], at)
            versions = work.choose.choice((_OLD, _NEW))
            yield work.choose.randrange(100)
            if found and (yield from _copied(producer, partition, [value for _, value in found], end, versions)):
                yield from _answered(
                    end_txn.EndTxnRequest(*producer, work.choose.random() < 0.7),
                    versions[2],
                    lambda one: one.error_code,
                )
        yield work.choose.randrange(1_000)


def _copied(
    producer: tuple[str, int, int], partition: int, values: list[int], end: int, versions: tuple[int, int, int]
) -> Generator[Any, Any, bool]:
    """Write the values and the offset `end` within a transaction. Return False if the producer may not."""
    name, producer_id, epoch = producer
    batch = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    texts = [str(value).encode() for value in values]
    committed = txn_offset_commit.TxnOffsetCommitRequestPartition(partition, end)
    commit = txn_offset_commit.TxnOffsetCommitRequest(
        name, COPIERS, producer_id, epoch,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(TOPIC, partitions=[committed])],
    )  # fmt: skip
    steps: list[tuple[Any, int, Callable[[Any], int]]] = [
        (
            produce_request(partition, *texts, topic=COPIES, transactional_id=name, **batch),
            versions[0],
            lambda one: int(one.responses[0].partition_responses[0].error_code),
        ),
        (commit, versions[1], lambda one: int(one.topics[0].partitions[0].error_code)),
    ]
    if versions == _OLD:
        steps.insert(0, _added_partition(producer, partition))
        added = add_offsets_to_txn.AddOffsetsToTxnRequest(*producer, COPIERS)
        steps.insert(2, (added, 3, lambda one: int(one.error_code)))
    for step in steps:
        if (yield from _answered(*step)):
            return False
    return True


def _added_partition(producer: tuple[str, int, int], partition: int) -> tuple[Any, int, Callable[[Any], int]]:
    name, producer_id, epoch = producer
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(COPIES, [partition])],
    )

    def error_of(response: Any) -> int:
        topic = response.results_by_topic_v3_and_below[0]
        return int(topic.results_by_partition[0].partition_error_code)

    return request, 3, error_of


def _copies(work: Workload) -> Ask:
    """Compare the committed offsets with the copies.

    Values before the offset count as sent. So a copy without its offset is unwritten, an offset without its copy is a
    lost write, and a double copy is a duplicate.
    """
    expected, found = [], {}
    for partition in range(PARTITIONS):
        # Open transactions have timed out, or end now.
        yield from new_producer(_transactional_id(partition))
        end = yield from _position(partition)
        name = partition_name(COPIES, partition)
        source = yield from all_records(work, TOPIC, partition)
        expected += [["send", name, value] for offset, value in source if offset < end]
        found[name] = yield from all_records(work, COPIES, partition)
    with work.record.operation("copiers", "send", expected) as call:
        call.ok()
    with work.record.operation("copies", "read_all") as call:
        call.ok(found)
    yield 0


def _scripts(work: Workload, operations: int) -> dict[str, Ask]:
    scripts: dict[str, Ask] = {}
    for number in (1, 2):
        name = f"send-{number}"
        scripts[name] = paced(work, idempotent(work, name, operations))
        name = f"txn-{number}"
        scripts[name] = transactional(work, name, operations)
        name = f"poll-{number}"
        scripts[name] = consumer(work, name, 2 * operations)
        for partition in range(PARTITIONS):
            scripts[f"copy-{partition}-{number}"] = copier(work, partition, operations)
    scripts["plain"] = paced(work, plain(work, "plain", operations))
    scripts |= {name: admin(work, name, operations) for name in ("admin-1", "admin-2")}
    for number in (1, 2, 3):
        instance_id = None if number == 1 else f"instance-{number}"
        members: list[groups.Owner | groups.Sharer] = [
            StaticClassic(work, f"classic-{number}", instance_id),
            StaticConsumer(work, f"consumer-{number}", instance_id),
            groups.Streams(work, f"streams-{number}"),
            groups.Sharer(work, f"share-{number}", TOPIC, PARTITIONS),
        ]
        scripts |= {member.process: member.run(operations) for member in members}
    return scripts


def anomalies_of(seed: int, operations: int = 8, cuts: float = 0.01, restarts: float = 0.002) -> list[Anomaly]:
    """Record the history of a seed, and check it."""
    return _recorded(seed, operations, cuts, restarts)[0]


def run(seed: int) -> str:
    """Record the history of a seed; return the digest of all that the server did and gave."""
    return _recorded(seed, 8, 0.01, 0.002)[1]


def _recorded(seed: int, operations: int, cuts: float, restarts: float) -> tuple[list[Anomaly], str]:
    with SimulatedServer(groups.SETTINGS, seed=seed) as server:
        work = prepared(server)
        record(server, work, operations, cuts, restarts, 3 * TIMEOUT_MS)
        return work.anomalies(), server.fingerprint()


def prepared(server: Driven) -> Workload:
    """Create what the clients use."""
    work, client = Workload(server), server.connect()
    work.create(client, TOPIC, PARTITIONS)
    work.create(client, COPIES, PARTITIONS)
    work.create(client, groups.MOVED, groups.MOVED_PARTITIONS)
    client.call(groups.share_from_the_beginning(), 1)
    return work


def record(server: Driven, work: Workload, operations: int, cuts: float, restarts: float, wait_ms: int) -> None:
    """Run all clients to their end, then wait and read everything."""
    drive(server, _scripts(work, operations), work.choose, cuts, restarts)
    drain = groups.Sharer(work, "drain", TOPIC, PARTITIONS).drain()
    drive(server, {"last": last(work, wait_ms), "drain": drain}, work.choose)
    drive(server, {"copies": _copies(work)}, work.choose)


if __name__ == "__main__":
    print(run(int(sys.argv[1])))
