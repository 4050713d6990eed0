"""Clients that take turns with a simulated server and record a history. A seed determines everything that they do."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from klamm import ErrorCode
from klamm.testing import SimulatedServer
from klamm.testing.admin import _Aborted
from klamm.testing.histories import Anomaly, Call
from klamm.wire.messages import add_partitions_to_txn, end_txn, init_producer_id
from klamm.wire.records import decode_records, iterate_batches
from tests.unit.testing import simulated_groups as groups
from tests.unit.testing.simulated_admins import admin
from tests.unit.testing.simulated_clients import Ask, Workload, drive, partition_name
from tests.unit.testing.simulated_script import TOPIC, fetch_request, produce_request

PARTITIONS = 2
TIMEOUT_MS = 20_000
_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def _name(partition: int) -> str:
    return partition_name(TOPIC, partition)


def new_producer(transactional_id: str | None) -> Generator[Any, Any, Any]:
    """Return a producer's id and epoch from the answer to InitProducerId."""
    while True:
        mine = yield init_producer_id.InitProducerIdRequest(transactional_id, TIMEOUT_MS), 4
        if mine is not None and mine.error_code == 0:
            return mine
        yield 50


def _outcome(response: Any) -> tuple[int, int]:
    found = response.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


def idempotent(work: Workload, process: str, operations: int) -> Ask:
    """Send values, each with the next sequence number of its partition."""
    mine, sequences = (yield from new_producer(None)), [0] * PARTITIONS
    for _ in range(operations):
        partition, value = work.choose.randrange(PARTITIONS), next(work.values)
        batch = {
            "producer_id": mine.producer_id,
            "producer_epoch": mine.producer_epoch,
            "base_sequence": sequences[partition],
        }
        response = None
        with work.record.operation(process, "send", [["send", _name(partition), value]]) as call:
            # The producer sends the same batch again until its answer comes.
            while response is None:
                response = yield produce_request(partition, str(value).encode(), **batch), 9
            error, offset = _outcome(response)
            if error == 0:
                call.ok([["send", _name(partition), value, offset]])
        sequences[partition] += 1
        if error:
            mine, sequences = (yield from new_producer(None)), [0] * PARTITIONS


def plain(work: Workload, process: str, operations: int) -> Ask:
    """Send values without idempotence, each once: without an answer it may be stored or not."""
    for _ in range(operations):
        partition, value = work.choose.randrange(PARTITIONS), next(work.values)
        with work.record.operation(process, "send", [["send", _name(partition), value]]) as call:
            response = yield produce_request(partition, str(value).encode()), 9
            if response is not None and not _outcome(response)[0]:
                call.ok([["send", _name(partition), value, _outcome(response)[1]]])


def transactional(work: Workload, process: str, operations: int) -> Ask:
    """Write to both partitions in each transaction, and commit or abort it, or leave it open."""
    for _ in range(operations):
        if work.choose.random() < 0.2:
            yield from _fenced(work, process)
        mine = yield from new_producer(process)
        producer = process, mine.producer_id, mine.producer_epoch
        values = [next(work.values) for _ in range(PARTITIONS)]
        steps: list[Any] = [["send", _name(partition), value] for partition, value in enumerate(values)]
        with work.record.operation(process, "txn", steps) as call:
            if not (yield from written(producer, steps)):
                continue
            chance = work.choose.random()
            if chance < 0.15:
                continue
            yield from _end(producer, call, committed=chance < 0.7)


def _fenced(work: Workload, process: str) -> Ask:
    """Fence a producer within its transaction, and let it send once more within that of its successor.

    The values that it sent must not be visible.
    """
    mine = yield from new_producer(process)
    producer = process, mine.producer_id, mine.producer_epoch
    lost: list[list[Any]] = [["send", _name(partition), next(work.values)] for partition in range(PARTITIONS)]
    late = ["send", _name(0), next(work.values)]
    with work.record.operation(f"{process}-fenced", "txn", [*lost, late]) as call:
        call.fail()
        yield from written(producer, lost)
        mine = yield from new_producer(process)
        successor = process, mine.producer_id, mine.producer_epoch
        steps: list[list[Any]] = [["send", _name(partition), next(work.values)] for partition in range(PARTITIONS)]
        with work.record.operation(process, "txn", steps) as own:
            if not (yield from written(successor, steps)):
                return
            batch = {"producer_id": producer[1], "producer_epoch": producer[2], "base_sequence": 1}
            yield produce_request(0, str(late[2]).encode(), transactional_id=process, **batch), 9
            yield from _end(successor, own, committed=True)


def _end(producer: tuple[str, int, int], call: Call, *, committed: bool) -> Ask:
    response = None
    while response is None or response.error_code == _CONCURRENT:
        response = yield end_txn.EndTxnRequest(*producer, committed), 3
        if response is None or response.error_code == _CONCURRENT:
            yield 20
    if response.error_code == 0:
        (call.ok if committed else call.fail)()


def written(producer: tuple[str, int, int], steps: list[Any]) -> Generator[Any, Any, bool]:
    """Send each value of a transaction. Return False if the producer may not."""
    name, producer_id, epoch = producer
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, list(range(PARTITIONS)))
    added = None
    while (
        added is None
        or added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == _CONCURRENT
    ):
        added = yield (
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[topic],
            ),
            3,
        )
        yield 10
    for partition, step in enumerate(steps):
        batch = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
        response = None
        while response is None:
            request = produce_request(partition, str(step[2]).encode(), transactional_id=name, **batch)
            response = yield request, 9
        error, offset = _outcome(response)
        if error:
            return False
        step.append(offset)
    return True


def records_from(data: Any, at: int) -> tuple[list[list[int]], int]:
    """Return offset and value of each committed record of a fetch from offset `at`, and the next offset."""
    found, is_aborted = [], _Aborted(data.aborted_transactions or ())
    for header, batch in iterate_batches(bytes(data.records or b"")):
        if not is_aborted(header) and not header.is_control:
            found += [[one.offset, int(bytes(one.value or b""))] for one in decode_records(batch) if one.offset >= at]
        at = max(at, header.last_offset + 1)
    return found, at


def consumer(work: Workload, process: str, operations: int) -> Ask:
    """Poll both partitions in turn from the beginning, and sometimes start again."""
    positions = [0] * PARTITIONS
    for number in range(operations):
        if work.choose.random() < 0.1:
            with work.record.operation(process, "assign", [_name(each) for each in range(PARTITIONS)]) as call:
                positions = [0] * PARTITIONS
                call.ok()
        partition = number % PARTITIONS
        with work.record.operation(process, "poll", [["poll"]]) as call:
            response = None
            while response is None:
                response = yield fetch_request(partition, positions[partition], max_wait_ms=20), 12
            found, positions[partition] = records_from(response.responses[0].partitions[0], positions[partition])
            call.ok([["poll", {_name(partition): found} if found else {}]])


def last(work: Workload, wait_ms: int) -> Ask:
    """Read everything, after open transactions have run out."""
    for process in ("txn-1", "txn-2"):
        yield from new_producer(process)
    yield wait_ms
    with work.record.operation("last", "read_all") as call:
        everything: dict[str, list[list[int]]] = {}
        for partition in range(PARTITIONS):
            everything[_name(partition)] = yield from all_records(work, TOPIC, partition)
        call.ok(everything)


def all_records(work: Workload, topic: str, partition: int) -> Generator[Any, Any, list[list[int]]]:
    """Read a partition from its first to its last record, or to a transaction that stays open; return offsets and
    values.
    """
    at, end, found = 0, 1, []
    left_ms = 3 * TIMEOUT_MS
    while at < end:
        response = yield fetch_request(partition, at, 0, topic), 12
        if response is None or (data := response.responses[0].partitions[0]).error_code:
            yield 50
            continue
        end, before = data.high_watermark, at
        more, at = records_from(data, at)
        found += more
        if at == before < end:
            # A transaction is open, or its marker is being written.
            if left_ms <= 0:
                work.hanging.append(partition_name(topic, partition))
                break
            left_ms -= 50
            yield 50
    return found


def paced(work: Workload, script: Ask) -> Ask:
    """Let a client pause between its requests, so that others see its actions at different times."""
    wanted = next(script)
    while True:
        answer = yield wanted
        if not isinstance(wanted, int) and work.choose.random() < 0.2:
            yield work.choose.randrange(1_000)
        try:
            wanted = script.send(answer)
        except StopIteration:
            return


def _scripts(work: Workload, operations: int) -> dict[str, Ask]:
    scripts: dict[str, Ask] = {}
    for number in (1, 2):
        name = f"send-{number}"
        scripts[name] = paced(work, idempotent(work, name, operations))
        name = f"txn-{number}"
        scripts[name] = transactional(work, name, operations)
        name = f"poll-{number}"
        scripts[name] = consumer(work, name, 2 * operations)
    scripts["plain"] = paced(work, plain(work, "plain", operations))
    scripts |= {name: admin(work, name, operations) for name in ("admin-1", "admin-2")}
    for number in (1, 2, 3):
        members: list[groups.Owner | groups.Sharer] = [
            groups.Classic(work, f"classic-{number}"),
            groups.Consumer(work, f"consumer-{number}"),
            groups.Streams(work, f"streams-{number}"),
            groups.Sharer(work, f"share-{number}", TOPIC, PARTITIONS),
        ]
        scripts |= {member.process: member.run(operations) for member in members}
    return scripts


def anomalies_of(seed: int, operations: int = 8, cuts: float = 0.02) -> list[Anomaly]:
    """Record the history of a seed, and check it."""
    with SimulatedServer(groups.SETTINGS, seed=seed) as server:
        work, client = Workload(server), server.connect()
        work.create(client, TOPIC, PARTITIONS)
        work.create(client, groups.MOVED, groups.MOVED_PARTITIONS)
        client.call(groups.share_from_the_beginning(), 1)
        drive(server, _scripts(work, operations), work.choose, cuts)
        drain = groups.Sharer(work, "drain", TOPIC, PARTITIONS).drain()
        drive(server, {"last": last(work, 3 * TIMEOUT_MS), "drain": drain}, work.choose)
        return work.anomalies()
