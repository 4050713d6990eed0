"""Tests of fetch sessions (KIP-227), of the cache alone and through Fetch requests."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode, KafkaError, KafkaPrincipal
from klamm.testing import ManualClock
from klamm.wire.messages import fetch
from klamm.wire.records import iterate_batches
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.fetch.sessions import FetchSessionCache, context_of, next_epoch
from tests.unit.broker.broker_harness import BrokerHarness, fetch_request

VERSION = 12


def cache_of(slots: int, clock: ManualClock | None = None, max_partitions: int = 1000) -> FetchSessionCache:
    numbers = itertools.count(1)
    settings = BrokerSettings(
        max_incremental_fetch_session_cache_slots=slots, fetch_session_max_partitions=max_partitions
    )
    return FetchSessionCache(settings, clock or ManualClock(), lambda count: next(numbers).to_bytes(count, "big"))


def full(harness: BrokerHarness, *offsets: tuple[int, int], topic: str = "t", **fields: Any) -> Any:
    return harness.call(fetch_request(topic, *offsets, session_id=0, session_epoch=0, **fields), VERSION)


def incremental(harness: BrokerHarness, session_id: int, epoch: int, *offsets: tuple[int, int], **fields: Any) -> Any:
    return harness.call(fetch_request("t", *offsets, session_id=session_id, session_epoch=epoch, **fields), VERSION)


def partitions_of(response: Any) -> list[int]:
    return [partition.partition_index for topic in response.responses for partition in topic.partitions]


def test_full_fetch_makes_a_session_and_returns_every_partition(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    response = full(harness, (0, 0), (1, 0))
    assert response.error_code == 0
    assert response.session_id != 0
    assert partitions_of(response) == [0, 1]


def test_incremental_fetch_returns_only_changes(harness: BrokerHarness) -> None:
    harness.create_topic("t", 3)
    session_id = full(harness, (0, 0), (1, 0), (2, 0)).session_id
    assert partitions_of(incremental(harness, session_id, 1)) == []
    harness.produce("t", b"x", partition=1)
    response = incremental(harness, session_id, 2)
    assert response.session_id == session_id
    assert partitions_of(response) == [1]
    assert partitions_of(incremental(harness, session_id, 3, (1, 1))) == []


def test_partitions_with_data_move_to_the_end_of_the_session(harness: BrokerHarness) -> None:
    harness.create_topic("t", 3)
    session_id = full(harness, (0, 0), (1, 0), (2, 0)).session_id
    for partition in range(3):
        harness.produce("t", b"x" * 100, partition=partition)
    assert partitions_of(incremental(harness, session_id, 1, max_bytes=1)) == [0, 1, 2]
    response = incremental(harness, session_id, 2, max_bytes=1)
    assert [each.partition_index for each in response.responses[0].partitions if each.records] == [1]
    response = incremental(harness, session_id, 3, max_bytes=1)
    assert [each.partition_index for each in response.responses[0].partitions if each.records] == [2]


def test_partitions_are_added_to_and_removed_from_a_session(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    session_id = full(harness, (0, 0)).session_id
    forgotten = [fetch.ForgottenTopic("t", partitions=[0])]
    assert partitions_of(incremental(harness, session_id, 1, (1, 0), forgotten_topics_data=forgotten)) == [1]
    harness.produce("t", b"x", partition=0)
    harness.produce("t", b"x", partition=1)
    assert partitions_of(incremental(harness, session_id, 2)) == [1]


def test_a_session_may_begin_without_partitions(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    session_id = full(harness).session_id
    assert session_id != 0
    assert partitions_of(incremental(harness, session_id, 1, (0, 0))) == [0]

    response = incremental(harness, full(harness).session_id, 1)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])


@pytest.mark.parametrize("epoch", [-1, 0])
def test_the_last_of_two_entries_for_a_partition_counts(harness: BrokerHarness, epoch: int) -> None:
    harness.create_topic("t", 2)
    for value in (b"a", b"b"):
        harness.produce("t", value)
    response = harness.call(fetch_request("t", (0, 0), (1, 0), (0, 1), session_id=0, session_epoch=epoch), VERSION)
    assert partitions_of(response) == [0, 1]
    (batch,) = iterate_batches(bytes(response.responses[0].partitions[0].records))
    assert batch[0].base_offset == 1


def test_a_session_distinguishes_a_deleted_topic_from_an_unknown_id(harness: BrokerHarness) -> None:
    def fetch_ids(session_id: int, epoch: int, *ids: bytes) -> Any:
        topics = [fetch.FetchTopic(topic_id=each, partitions=[fetch.FetchPartition(0)]) for each in ids]
        request = fetch.FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)
        return harness.call(request, 17)

    def errors(response: Any) -> dict[bytes, ErrorCode]:
        return {topic.topic_id: ErrorCode(topic.partitions[0].error_code) for topic in response.responses}

    topic_id, never = harness.create_topic("t"), b"\7" * 16
    first = fetch_ids(0, 0, topic_id, never)
    assert errors(first) == {topic_id: ErrorCode.NONE, never: ErrorCode.UNKNOWN_TOPIC_ID}
    topic = harness.broker.topics.get("t")
    assert topic is not None
    harness.broker.topics.delete(topic)
    assert errors(fetch_ids(first.session_id, 1)) == {
        topic_id: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        never: ErrorCode.UNKNOWN_TOPIC_ID,
    }
    harness.create_topic("t")
    assert errors(fetch_ids(first.session_id, 2))[topic_id] is ErrorCode.INCONSISTENT_TOPIC_ID
    assert errors(fetch_ids(0, 0, topic_id)) == {topic_id: ErrorCode.UNKNOWN_TOPIC_ID}

    late = fetch_ids(0, 0, never).session_id
    assert errors(fetch_ids(late, 1, topic_id))[topic_id] is ErrorCode.UNKNOWN_TOPIC_ID


def test_only_some_deleted_topics_are_known_by_name(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm_broker.topics.topic_registry._MOST_DELETED", 1)
    topics = harness.broker.topics
    first, second = harness.create_topic("a"), harness.create_topic("b")
    before = topics.generation
    for topic in topics.all():
        harness.broker.topics.delete(topic)
    assert [topics.name_of_deleted(each, before) for each in (first, second)] == [None, "b"]
    assert topics.name_of_deleted(second, topics.generation) is None


def test_a_session_without_partitions_ends(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    session_id = full(harness, (0, 0)).session_id
    response = incremental(harness, session_id, 1, forgotten_topics_data=[fetch.ForgottenTopic("t", partitions=[0])])
    assert (response.session_id, response.responses) == (0, [])
    assert len(harness.broker.services_of(0).fetch_sessions) == 0


def test_errors_are_reported_each_time(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    session_id = full(harness, (0, 99)).session_id
    for epoch in (1, 2):
        response = incremental(harness, session_id, epoch)
        assert [each.error_code for each in response.responses[0].partitions] == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_unknown_session_is_refused(harness: BrokerHarness) -> None:
    response = incremental(harness, 4711, 1)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert response.session_id == 0


@pytest.mark.parametrize("epoch", [2, 7])
def test_wrong_epoch_leaves_the_session_as_it_is(harness: BrokerHarness, epoch: int) -> None:
    harness.create_topic("t")
    session_id = full(harness, (0, 0)).session_id
    assert incremental(harness, session_id, epoch).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert incremental(harness, session_id, 1).error_code == 0


def test_final_epoch_closes_the_session(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    session_id = full(harness, (0, 0)).session_id
    response = incremental(harness, session_id, -1)
    assert (response.error_code, response.session_id) == (0, 0)
    assert incremental(harness, session_id, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_of_topic_names_cannot_continue_with_ids(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    session_id = full(harness, (0, 0)).session_id
    response = harness.call(fetch_request(b"", session_id=session_id, session_epoch=1), 13)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_that_another_request_has_continued_is_an_error(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    session_id = full(harness, (0, 0)).session_id
    waiting = harness.send(fetch_request("t", max_wait_ms=500, session_id=session_id, session_epoch=1), VERSION)
    assert waiting.pending
    incremental(harness, session_id, 2)
    harness.advance_ms(500)
    assert waiting.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_cache_without_slots_creates_no_session(tmp_path: Any) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(max_incremental_fetch_session_cache_slots=0)
    harness.create_topic("t")
    response = full(harness, (0, 0))
    assert (response.session_id, partitions_of(response)) == (0, [0])
    harness.broker.close()


def test_session_epochs_wrap_to_one() -> None:
    assert next_epoch(1) == 2
    assert next_epoch(2**31 - 1) == 1


def test_a_full_cache_evicts_a_stale_session() -> None:
    clock = ManualClock()
    cache = cache_of(1, clock)
    first = cache.create(False, 1)
    assert first is not None
    assert cache.create(False, 1) is None
    clock.advance_ms(120_001)
    assert cache.create(False, 1) is not None
    assert cache.get(first.id) is None


def test_a_session_in_use_is_not_stale() -> None:
    clock = ManualClock()
    cache = cache_of(1, clock)
    first = cache.create(False, 2)
    assert first is not None
    fill(first, 2)
    clock.advance_ms(100_000)
    cache.touch(first)
    clock.advance_ms(100_000)
    assert cache.create(False, 2) is None
    assert cache.get(first.id) is first


def test_a_larger_session_evicts_an_old_smaller_one() -> None:
    clock = ManualClock()
    cache = cache_of(2, clock)
    small, large = cache.create(False, 1), cache.create(False, 5)
    assert small is not None
    assert large is not None
    fill(small, 1)
    fill(large, 5)
    assert cache.create(False, 3) is None
    clock.advance_ms(120_001)
    cache.touch(small)
    cache.touch(large)
    assert cache.create(False, 3) is not None
    assert cache.get(small.id) is None
    assert cache.get(large.id) is large


def test_an_evicted_session_is_unknown() -> None:
    clock = ManualClock()
    cache = cache_of(1, clock)
    first = cache.create(False, 1)
    assert first is not None
    fill(first, 1)
    clock.advance_ms(120_001)
    cache.create(False, 1)
    with pytest.raises(KafkaError) as caught:
        context_of(cache, fetch.FetchRequest(session_id=first.id, session_epoch=1), VERSION)
    assert caught.value.error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def fill(session: Any, partitions: int) -> None:
    wanted = fetch.FetchTopic("t", partitions=[fetch.FetchPartition(index) for index in range(partitions)])
    session.update(fetch.FetchRequest(topics=[wanted]), VERSION, 0)


def test_the_partitions_of_all_sessions_are_limited(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(fetch_session_max_partitions=3)
    harness.create_topic("t", 4)
    cache = harness.broker.services_of(0).fetch_sessions
    first = full(harness, (0, 0), (1, 0))
    second = full(harness, (2, 0), (3, 0))
    assert first.session_id
    assert (second.session_id, partitions_of(second)) == (0, [2, 3]), "served without a session"
    assert incremental(harness, first.session_id, 1, (2, 0)).error_code == 0
    assert cache.partition_count == 3
    # The partition may belong to a missing topic, because that takes as much memory.
    request = fetch_request("nope", (0, 0), session_id=first.session_id, session_epoch=2)
    assert harness.call(request, VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)
    assert full(harness, (0, 0), (1, 0), (2, 0)).session_id
    name = "kafka.server:type=FetchSessionCache,name="
    collected = harness.listener.services.metrics.collect(lambda each: each.startswith(name))
    metrics = {family.name: family.samples[0].value for family in collected}
    assert metrics[name + "NumIncrementalFetchPartitionsCached"] == 3
    assert metrics[name + "NumIncrementalFetchSessions"] == 1
    harness.broker.close()


def test_forgotten_partitions_and_ended_sessions_make_room(harness: BrokerHarness) -> None:
    harness.create_topic("t", 3)
    cache = harness.broker.services_of(0).fetch_sessions
    session_id = full(harness, (0, 0), (1, 0), (2, 0)).session_id
    assert cache.partition_count == 3
    forgotten = [fetch.ForgottenTopic("t", partitions=[0, 1])]
    incremental(harness, session_id, 1, forgotten_topics_data=forgotten)
    assert cache.partition_count == 1
    harness.call(fetch_request("t", session_id=session_id, session_epoch=-1), VERSION)
    assert (len(cache), cache.partition_count) == (0, 0)


def test_only_unused_sessions_are_evicted_for_partitions() -> None:
    clock = ManualClock()
    cache = cache_of(10, clock, max_partitions=10)
    old, used = cache.create(False, 4), cache.create(False, 4)
    assert old is not None
    assert used is not None
    assert cache.create(False, 11) is None
    clock.advance_ms(120_001)
    used.partitions.update({("t", index): None for index in range(4)})  # type: ignore[misc]
    cache.touch(used)
    assert cache.create(False, 7) is None, "one that is used stays, however old"
    assert (len(cache), cache.partition_count) == (1, 4)
    assert cache.create(False, 6) is not None
    assert (len(cache), cache.partition_count, cache.evictions) == (2, 10, 1)


def test_no_session_keeps_a_name_that_no_topic_can_have(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    long = "n" * 250
    assert full(harness, (0, 0), topic=long).session_id == 0
    session_id = full(harness, (0, 0)).session_id
    request = fetch_request(long, (0, 0), session_id=session_id, session_epoch=1)
    assert harness.call(request, VERSION).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert harness.broker.services_of(0).fetch_sessions.partition_count == 1
    assert incremental(harness, session_id, 1).error_code == 0


def made(cache: FetchSessionCache, owner: str, count: int, size: int = 1) -> list[int]:
    """Open this many sessions for an owner, as far as possible. Return their ids."""
    sessions = [cache.create(False, size, owner) for _ in range(count)]
    return [session.id for session in sessions if session is not None]


def test_one_owner_leaves_slots_to_others() -> None:
    """This also holds for sessions in use, which cannot be evicted, and for several other owners."""
    cache = cache_of(100)

    assert len(made(cache, "mallory", 200)) == 90
    assert len(made(cache, "alice", 3)) == 3
    assert len(made(cache, "bob", 1)) == 1
    assert len(made(cache, "mallory", 1)) == 0
    assert cache.slots.largest_share == 90


def test_the_owner_with_most_sessions_loses_one_first() -> None:
    """This holds for sessions that are unused for two minutes, even if other sessions are older or smaller."""
    clock = ManualClock()
    cache = cache_of(30, clock)
    quiet = made(cache, "alice", 5)
    clock.advance_ms(1)
    many = made(cache, "mallory", 20)
    assert len(many) == 20
    clock.advance_ms(120_001)
    for _ in range(8):
        assert made(cache, "bob", 1)

    assert [each for each in quiet if cache.get(each) is None] == []
    assert 0 < cache.evictions == sum(cache.get(each) is None for each in many)

    for each in (*quiet, *many):
        session = cache.get(each)
        if session is not None:
            cache.touch(session)
    evicted = cache.evictions
    cache.create(False, 5, "bob")
    assert cache.evictions == evicted + 1
    assert [each for each in quiet if cache.get(each) is None] == []


def test_the_owner_with_most_sessions_evicts_no_session_of_others() -> None:
    clock = ManualClock()
    cache = cache_of(100, clock)
    quiet = made(cache, "alice", 5)
    clock.advance_ms(120_001)
    mine = made(cache, "mallory", 100)
    for _ in range(100):
        made(cache, "mallory", 1, size=7)

    assert all(cache.get(each) is not None for each in quiet)
    clock.advance_ms(120_001)
    for each in quiet:
        session = cache.get(each)
        assert session is not None
        cache.touch(session)
    assert made(cache, "mallory", 1)
    assert [each for each in mine if cache.get(each) is None] == [mine[0]]


def test_one_owner_leaves_partitions_to_others() -> None:
    cache = cache_of(100, max_partitions=100)

    (large,) = made(cache, "mallory", 1, size=80)
    assert len(made(cache, "mallory", 5, size=10)) == 1
    (small,) = made(cache, "alice", 1, size=2)
    session = cache.get(large)
    assert session is not None
    request = fetch_request("t", *((index, 0) for index in range(150)), session_id=large, session_epoch=1)
    with pytest.raises(KafkaError, match="FETCH_SESSION_ID_NOT_FOUND"):
        context_of(cache, request, VERSION)
    assert cache.get(small) is not None


def test_sessions_count_for_the_principal(harness: BrokerHarness) -> None:
    harness.reopen(max_incremental_fetch_session_cache_slots=20)
    harness.create_topic("t")
    harness.principal = KafkaPrincipal("mallory")
    sessions = [full(harness, (0, 0)).session_id for _ in range(22)]
    assert [bool(each) for each in sessions] == [True] * 18 + [False] * 4

    harness.principal = KafkaPrincipal("alice")
    assert full(harness, (0, 0)).session_id
    harness.principal = KafkaPrincipal("mallory")
    assert incremental(harness, sessions[0], 1).error_code == 0
