"""Tests of the cache of share sessions: its limits, and the share of one owner."""

from __future__ import annotations

import contextlib

import pytest

from klamm import ErrorCode, KafkaError
from klamm_broker.share.sessions import SessionKey, ShareSessionCache, TopicPartition


def key(member_id: str) -> SessionKey:
    return SessionKey("g", member_id, 0)


def partitions(*indexes: int) -> list[TopicPartition]:
    return [(bytes(16), index) for index in indexes]


@pytest.fixture
def ended() -> list[SessionKey]:
    return []


@pytest.fixture
def cache(ended: list[SessionKey]) -> ShareSessionCache:
    return ShareSessionCache(10, 3, ended.append)


def test_a_session_starts_only_if_there_is_room_for_its_partitions(cache: ShareSessionCache) -> None:
    cache.begin(key("a"), "1", partitions(0, 1))
    with pytest.raises(KafkaError) as caught:
        cache.begin(key("b"), "2", partitions(0, 1))
    assert caught.value.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (len(cache), cache.partition_count) == (1, 2)
    cache.begin(key("b"), "2", partitions(0))
    cache.end(key("a"))
    assert cache.partition_count == 1
    cache.begin(key("b"), "2", partitions(0, 1, 2))
    assert (len(cache), cache.partition_count) == (1, 3)


def test_a_session_that_grows_beyond_the_limit_ends(cache: ShareSessionCache, ended: list[SessionKey]) -> None:
    cache.begin(key("a"), "1", partitions(0, 1))
    cache.resume(key("a"), 1, partitions(2))
    cache.resume(key("a"), 2, partitions(3), partitions(0))
    assert cache.partition_count == 3
    with pytest.raises(KafkaError) as caught:
        cache.resume(key("a"), 3, partitions(4))
    assert caught.value.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert ended == [key("a")]
    assert (len(cache), cache.partition_count) == (0, 0)
    cache.begin(key("a"), "1", partitions(0))
    cache.connection_closed("1")
    assert cache.partition_count == 0


def test_one_owner_leaves_sessions_and_partitions_to_others() -> None:
    """The owner's existing sessions continue, and may start again."""
    cache = ShareSessionCache(20, 1000, lambda _key: None)

    def got_one(owner: str, number: int, size: int = 1) -> bool:
        with contextlib.suppress(KafkaError):
            cache.begin(key(f"{owner}-{number}"), f"{owner}-{number}", partitions(*range(size)), owner)
            return True
        return False

    assert [got_one("mallory", number) for number in range(20)] == [True] * 18 + [False] * 2
    assert got_one("alice", 0)
    assert got_one("mallory", 0)
    assert cache.resume(key("mallory-0"), 1, partitions(1)).partitions
    assert cache.slots.largest_share == 18

    for number in range(1, 18):
        cache.end(key(f"mallory-{number}"))
    assert got_one("mallory", 1, 800)
    assert not got_one("mallory", 2, 100)
    assert got_one("alice", 1, 10)
    with pytest.raises(KafkaError, match="SHARE_SESSION_NOT_FOUND"):
        cache.resume(key("mallory-1"), 1, partitions(*range(1000, 1100)))
    assert cache.resume(key("mallory-0"), 2).partitions
    assert cache.partition_count == 13
