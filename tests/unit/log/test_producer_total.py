"""Tests of the limit for the producers that all logs remember together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from klamm import ErrorCode, KafkaError
from klamm.testing import ManualClock
from klamm.wire.records import TRANSACTIONAL, ControlRecordType, Record, encode_batch
from klamm_broker.log.manager import LogManager
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.producer_state import ProducerStateManager
from tests.unit.log.playbook import START_MS, TOPIC_ID, config

LIMIT: Final = 160
FIRST: Final = 10_000
"""The first id of the invented producers."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], LogManager]]:
    """Return a function that opens the directory, after a clean stop or a kill of the earlier manager."""
    started: list[LogManager] = []

    def open_it(*, killed: bool = False) -> LogManager:
        if started:
            manager = started.pop()
            if killed:
                manager.producers.close()
                for each in manager.logs():
                    each.close_files()
                manager._directory_lock.release()
            else:
                manager.close()
        manager = LogManager(tmp_path, clock=ManualClock(START_MS), max_producers=LIMIT)
        manager.open()
        started.append(manager)
        return manager

    yield open_it
    started[0].close()


def opened(manager: LogManager, partition: int = 0, **configs: object) -> PartitionLog:
    return manager.get_or_create("topic", partition, TOPIC_ID, config(**configs))


def count(log: PartitionLog) -> int:
    return len(log.active_producers())


def send(log: PartitionLog, producer: int, sequence: int = 0, attributes: int = 0, age_ms: int = 0) -> None:
    """Append one batch with a timestamp of the age that its producer states."""
    batch = encode_batch(
        [Record(timestamp_ms=START_MS - age_ms, value=b"v")],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        attributes=attributes,
    )
    log.append(batch, now_ms=START_MS)


def invent(manager: LogManager, log: PartitionLog, number: int, attributes: int = 0) -> None:
    """Append batches of this number of new producers."""
    first = max(FIRST, manager.producers.highest_id + 1)
    for producer in range(first, first + number):
        send(log, producer, attributes=attributes)
        manager.producers.close()


def test_invented_producers_stay_within_the_limit(start: Callable[..., LogManager]) -> None:
    """Active producers stay, whatever their timestamps say. A producer that was dropped counts as expired."""
    manager = start()
    log = opened(manager)
    send(log, 1)
    send(log, 2)
    for sequence in range(1, 40):
        invent(manager, log, 10)
        send(log, 2, sequence, age_ms=86_400_000)
        assert count(log) <= LIMIT

    assert count(log) > LIMIT // 2
    assert count(log) + manager.producers.evicted == 392
    assert not log.knows_producer(1)
    with pytest.raises(KafkaError, match=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
        send(log, 2, 100)
    send(log, 1, 100)
    assert log.knows_producer(1)


def test_other_logs_keep_their_producers(start: Callable[..., LogManager]) -> None:
    """The other logs have fewer producers than the log in which producers are invented."""
    manager = start()
    honest, attacked = opened(manager, 0), opened(manager, 1)
    for producer in range(40):
        send(honest, producer)
    for _ in range(20):
        invent(manager, attacked, 20)
        assert count(honest) + count(attacked) <= LIMIT

    assert count(honest) == 40


def test_producers_in_transactions_are_kept(start: Callable[..., LogManager]) -> None:
    """Other producers keep at least half of their equal share, even if producers in transactions exceed the total."""
    manager = start()
    honest, attacked = opened(manager, 0), opened(manager, 1)
    for producer in range(LIMIT // 4):
        send(honest, producer)
    invent(manager, attacked, 2 * LIMIT, TRANSACTIONAL)
    assert (count(honest), count(attacked)) == (LIMIT // 4, 2 * LIMIT)

    attacked.append_end_transaction_marker(
        ControlRecordType.COMMIT, producer_id=FIRST, producer_epoch=0, coordinator_epoch=0, now_ms=START_MS
    )
    invent(manager, attacked, LIMIT // 8)
    assert not attacked.knows_producer(FIRST)
    assert all(attacked.knows_producer(producer) for producer in range(FIRST + 1, FIRST + 2 * LIMIT))
    assert count(honest) == LIMIT // 4


@pytest.mark.parametrize("killed", [False, True])
def test_the_limit_holds_after_a_restart(start: Callable[..., LogManager], tmp_path: Path, killed: bool) -> None:
    """The limit also holds if records of more producers are replayed, and for snapshots."""
    manager = start()
    for partition in range(4):
        invent(manager, opened(manager, partition, segment_bytes=10_000), LIMIT)
    snapshot_bytes = [path.stat().st_size for path in tmp_path.glob("topic-*/*.snapshot")]
    assert snapshot_bytes
    assert max(snapshot_bytes) <= len(ProducerStateManager().snapshot()) + 46 * LIMIT

    manager = start(killed=killed)
    for partition in range(4):
        assert count(opened(manager, partition)) <= LIMIT
        manager.producers.close()
        assert manager.producers.used <= LIMIT


def test_a_single_log_obeys_the_limit_while_it_is_read(start: Callable[..., LogManager], tmp_path: Path) -> None:
    """There is no snapshot, and each record has another producer. The limit applies before any other log is read."""
    manager = start()
    invent(manager, opened(manager), 5 * LIMIT)
    manager = start(killed=True)
    for path in tmp_path.glob("topic-0/*.snapshot"):
        path.unlink()
    most = 0

    class Watched(dict[int, object]):
        def __setitem__(self, key: int, value: object) -> None:
            nonlocal most
            super().__setitem__(key, value)
            most = max(most, len(self))

    from klamm_broker.log import producer_state

    original = producer_state.ProducerStateManager.clear

    def clear(self: ProducerStateManager) -> None:
        original(self)
        self.entries = Watched()  # type: ignore[assignment]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_state.ProducerStateManager, "clear", clear)
        opened(manager)

    assert 0 < most <= LIMIT
