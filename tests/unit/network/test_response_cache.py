"""Cached responses: found for equal requests only, with any bytes from a client."""

import pytest

from klamm.api.context import RequestContext
from klamm.api.pending import NO_RESPONSE
from klamm.metrics.requests import RequestCount
from klamm.requests.pending import CloseConnection, PendingRequest
from klamm.requests.response_cache import ResponseCache
from tests.unit.network.fakes import connection_context

FRAME = bytearray(b"\0\3\0\14" + b"\0\0\0\1" + b"body")
ANSWER = b"\0\0\0\7" + b"\0\0\0\1" + b"yes"
EQUAL = FRAME[:4] + b"\0\0\0\2" + FRAME[8:]


def client(software=("unknown", "unknown")):
    connection = connection_context()
    connection.client_software_name, connection.client_software_version = software
    return connection


def keep_in(cache, *, count=None, frame=FRAME, result=None, software=("unknown", "unknown"), unchanged=lambda: 1):
    context = RequestContext(client(software), None, frame[1], frame[3], 1, None)
    request = PendingRequest(context, None, None, frame, 8, None)
    cache.keep(frame, unchanged, unchanged(), [ANSWER] if result is None else result, request, count)


def kept(**options):
    cache = ResponseCache({3, 18})
    keep_in(cache, **options)
    return cache


def busy_count():
    """Of an API that has many requests: no sample is due."""
    count = RequestCount(always=False)
    count.until_sample = 2
    return count


@pytest.mark.parametrize("count", [None, busy_count()], ids=["uncounted", "counted"])
def test_an_equal_request_gets_the_answer_with_its_own_correlation_id(count):
    assert kept(count=count).find(EQUAL, client()) == ANSWER[:4] + b"\0\0\0\2" + ANSWER[8:]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"\0\3",
        FRAME[:8],
        b"\1" + FRAME[1:],
        FRAME[:1] + b"\4" + FRAME[2:],
        FRAME[:3] + b"\0" + FRAME[4:],
        FRAME + b"x",
        memoryview(FRAME + bytes(100_000)),
    ],
)
def test_any_other_frame_gets_none(frame):
    assert kept().find(frame, client()) is None
    assert ResponseCache({3, 18}).find(frame, client()) is None


def test_each_answer_is_counted_and_a_request_that_is_due_to_be_sampled_is_executed():
    count = busy_count()
    cache, before = kept(count=count), count.count
    assert [cache.find(FRAME, client()) is not None for _ in range(4)] == [True, True, False, False]
    assert count.count - before == 2


def test_where_nothing_is_counted_nothing_is_sampled():
    cache = kept()
    assert all(cache.find(FRAME, client()) is not None for _ in range(5000))


def test_a_changed_token_ends_the_answer():
    tokens = [1]
    cache = kept(unchanged=lambda: tokens[0])
    assert cache.find(FRAME, client()) is not None
    tokens[0] = 2
    assert cache.find(FRAME, client()) is None


@pytest.mark.parametrize(
    "result",
    [
        NO_RESPONSE,
        CloseConnection("broken"),
        [ANSWER, ANSWER],
        [memoryview(ANSWER)],
        [ANSWER + bytes(17 * 1024)],
    ],
    ids=["none", "close", "chunks", "view", "large"],
)
def test_only_one_small_piece_of_bytes_is_kept(result):
    assert kept(result=result).find(FRAME, client()) is None


def test_large_requests_are_not_kept():
    frame = FRAME + bytes(1024)
    assert kept(frame=frame).find(frame, client()) is None


def test_the_cache_is_bounded():
    cache = ResponseCache({3, 18})
    for number in range(2000):
        keep_in(cache, frame=FRAME + number.to_bytes(4, "big"))
    assert sum(cache.find(FRAME + number.to_bytes(4, "big"), client()) is not None for number in range(2000)) <= 256
    assert cache.find(FRAME + (1999).to_bytes(4, "big"), client()) is not None


def test_an_answer_to_api_versions_that_names_the_client_software_is_for_connections_that_have_named_it():
    frame = b"\0\22\0\3" + FRAME[4:]
    cache = kept(frame=frame, software=("librdkafka", "2.1"))
    assert cache.find(frame, client(("librdkafka", "2.1"))) == ANSWER
    for other in (("unknown", "unknown"), ("librdkafka", "2.2"), ("kafka-python", "2.1")):
        assert cache.find(frame, client(other)) is None
    old = b"\0\22\0\2" + FRAME[4:]
    assert kept(frame=old).find(old, client(("any", "1"))) == ANSWER


def test_an_answer_to_api_versions_that_may_name_a_node_is_not_kept():
    """A listener may have a port for each node."""
    frame = bytearray(b"\0\22\0\5" + b"\0\0\0\1" + b"body")
    assert kept(frame=frame).find(frame, client()) is None


def test_a_request_is_worth_keeping_when_it_comes_for_the_second_time():
    cache = ResponseCache({3})
    for wanted in (False, True, True):
        assert cache.find(FRAME, client()) is None
        assert cache.is_wanted is wanted
        assert cache.find(FRAME + b"another", client()) is None
    assert cache.find(FRAME[:1] + b"\4" + FRAME[2:], client()) is None
    assert not cache.is_wanted
    keep_in(cache)
    assert cache.find(EQUAL, client()) is not None


def test_what_was_seen_once_is_forgotten_when_it_is_too_much():
    cache = ResponseCache({3})
    for number in range(1000):
        cache.find(FRAME + number.to_bytes(4, "big"), client())
    assert len(cache._seen) <= 256
