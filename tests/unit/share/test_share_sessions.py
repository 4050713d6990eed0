"""The cache of share sessions: its limit of partitions."""

from __future__ import annotations

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


def test_a_session_begins_only_if_there_is_room_for_its_partitions(cache: ShareSessionCache) -> None:
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
