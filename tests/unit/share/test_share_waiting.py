"""Tests of ShareFetch requests that wait: what an append, the scheduler and a full disk cause."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from klamm.wire.messages.share_fetch import FetchPartition, FetchTopic
from klamm_broker.share.fetching import DelayedShareFetch, PendingShareFetch
from klamm_broker.share.live_partition import LiveSharePartition
from klamm_broker.storage.store import StoreError
from klamm_broker.topics.topic import Partition
from tests.unit.share.test_share_fetch import ACCEPT, Shares, acquired
from tests.waiting import wait_until


def wants(shares: Shares, count: int) -> list[FetchTopic]:
    """Return all partitions of the topic."""
    return [FetchTopic(shares.topic_id, [FetchPartition(index) for index in range(count)])]


def reads_of_each(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, threading.Thread]]:
    """Return a list of the partitions that are read from now on, with the reading threads."""
    reads: list[tuple[int, threading.Thread]] = []
    fetch = LiveSharePartition.fetch

    def noted(live: LiveSharePartition, *arguments: Any, **options: Any) -> Any:
        reads.append((live.key.partition, threading.current_thread()))
        return fetch(live, *arguments, **options)

    monkeypatch.setattr(LiveSharePartition, "fetch", noted)
    return reads


def test_an_append_reads_only_its_own_partition(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = shares.send_fetch("a", 0, wait_ms=500, topics=wants(shares, 2))
    shares.settle()
    looked_at: list[int] = []
    has_records = LiveSharePartition.has_records

    def noted(live: LiveSharePartition) -> bool:
        looked_at.append(live.key.partition)
        return has_records(live)

    monkeypatch.setattr(LiveSharePartition, "has_records", noted)
    reads = reads_of_each(monkeypatch)
    shares.harness.produce("t", b"x", partition=1)
    assert looked_at == [1]
    assert [index for index, _ in reads] == [1]
    shares.settle()
    assert len(waiting.response.responses[0].partitions) == 2
    assert acquired(waiting.response) == [(0, 0, 1)]


def test_the_scheduler_reads_no_session_of_many_partitions(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm_broker.fetch.reading.READ_AT_ONCE", 1)
    waiting = shares.send_fetch("a", 0, wait_ms=500, topics=wants(shares, 2))
    assert waiting.pending
    reads = reads_of_each(monkeypatch)
    shares.harness.advance_ms(500)
    wait_until(lambda: not waiting.pending)
    assert len(reads) == 2
    assert threading.current_thread() not in dict(reads).values()


def test_an_append_reads_no_session_of_many_partitions(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetch of another member, which gets no records, continues to wait."""
    monkeypatch.setattr("klamm_broker.fetch.reading.READ_AT_ONCE", 1)
    waiting = [shares.send_fetch(member, 0, wait_ms=500, topics=wants(shares, 2)) for member in "ab"]
    shares.settle()
    reads = reads_of_each(monkeypatch)
    for partition in (1, 0):
        assert shares.harness.produce("t", b"x", partition=partition).error_code == 0
        wait_until(lambda: any(not each.pending for each in waiting))
        shares.settle()
        (answered,) = (each for each in waiting if not each.pending)
        assert acquired(answered.response) == [(0, 0, 1)]
        waiting.remove(answered)
        if partition:
            assert waiting[0].pending
    assert threading.current_thread() not in {thread for _, thread in reads}
    assert shares.harness.broker.fetch_purgatory.watched() == 0


def test_a_fetch_that_expires_while_an_append_reads_for_it_answers_with_a_reading_of_its_own(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = shares.send_fetch("a", 0, wait_ms=500)
    shares.settle()
    read, on_expiration = PendingShareFetch.read, DelayedShareFetch.on_expiration
    has_read, is_claimed = threading.Event(), threading.Event()
    producer = threading.Thread(target=shares.produce, args=(b"0",))

    def slow_read(fetch: PendingShareFetch, *arguments: Any) -> Any:
        reading = read(fetch, *arguments)
        if threading.current_thread() is producer:
            has_read.set()
            assert is_claimed.wait(30)
        return reading

    def slow_expiration(delayed: DelayedShareFetch) -> None:
        on_expiration(delayed)
        is_claimed.set()
        producer.join(30)
        shares.settle()

    monkeypatch.setattr(PendingShareFetch, "read", slow_read)
    monkeypatch.setattr(DelayedShareFetch, "on_expiration", slow_expiration)
    producer.start()
    assert has_read.wait(30)
    shares.harness.advance_ms(500)
    assert not producer.is_alive()
    assert acquired(waiting.response) == [(0, 0, 2)], "the first one was given back"
    assert shares.acknowledge("a", 1, (0, 0, [ACCEPT])).responses[0].partitions[0].error_code == 0


def test_writes_that_fail_are_tried_again_once_a_second(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member waits for records whose lock ends while the disk is full."""
    shares.produce(b"0", b"1")
    assert shares.acquired("a", 0) == [(0, 1, 1)]
    assert shares.acquired("b", 0) == []
    store, tries = shares.harness.broker.store, list[Any]()

    def fail(statements: Any, *, sync: bool) -> None:
        tries.extend(sql for sql, _ in statements if sql.startswith("INSERT INTO share_partitions"))
        raise StoreError("disk full")

    def rounds() -> int:
        """The scheduler or the store repeats failed work in each round.

        It tries a write once with others, and once alone.
        """
        for _ in range(20):
            shares.harness.scheduler.run_due()
            with pytest.raises(StoreError) if store.transact is fail else contextlib.nullcontext():
                store.write_and_wait([])
        count = len(tries)
        tries.clear()
        return count

    with monkeypatch.context() as patch:
        patch.setattr(store, "transact", fail)
        waiting = shares.send_fetch("b", 1, wait_ms=10_000_000)
        shares.harness.clock.advance_ms(30_000)
        assert 1 <= rounds() <= 2
        shares.harness.clock.advance_ms(1000)
        assert 1 <= rounds() <= 2
        assert waiting.pending
    shares.harness.clock.advance_ms(1000)
    rounds()
    assert acquired(waiting.response) == [(0, 1, 2)]


def test_acknowledgements_that_wait_are_answered_when_the_log_has_lost_records(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares.produce(b"0")
    shares.produce(b"1")
    assert shares.acquired("a", 0, max_bytes=1) == [(0, 0, 1)]
    goes_on = shares.hold_the_store()
    topics = [AcknowledgeTopic(shares.topic_id, [AcknowledgePartition(0, [AcknowledgementBatch(0, 0, [ACCEPT])])])]
    waiting = shares.harness.send(ShareAcknowledgeRequest(shares.group, "a", 1, topics=topics), 2)
    assert waiting.pending

    def gone(*_arguments: Any, **_options: Any) -> Any:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "read", gone)
        patch.setattr(Partition, "high_watermark", 0)
        assert acquired(shares.send_fetch("b", 0).response) == []
    goes_on.set()
    shares.settle()
    shares.harness.scheduler.run_due()
    assert waiting.response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
