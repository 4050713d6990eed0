"""Requests of busy connections: told of, sampled and counted, and none forgotten."""

import pytest

from klamm import Address, ConnectionContext, ListenerContext, RequestContext
from klamm.requests.repeats import Repeats

LISTENER = ListenerContext("l", Address("", 0), Address("", 0))
SECOND = 1_000_000_000


class RequestObservers:
    """Takes down what it is told."""

    def __init__(self):
        self.alone = []
        self.lumps = []

    def may_repeat(self, api_key):
        return api_key != 19

    def completed(self, requests):
        self.alone += [request.correlation_id for request in requests]

    def repeated(self, request, count, request_bytes, response_bytes, last_ns):
        self.lumps.append((request.api_key, request.correlation_id, count, request_bytes, response_bytes, last_ns))


class Channel:
    """What `Repeats` needs of a channel."""

    def __init__(self):
        self.connection = ConnectionContext("c", LISTENER, Address("", 0), Address("", 0))
        self.tallies = {}
        self.repeating = None
        self.repeated = 0


@pytest.fixture
def observation():
    return RequestObservers()


def request_of(channel, api_key=3, correlation_id=1, size_bytes=100, client_id="me"):
    request = RequestContext(channel.connection, None, api_key, 0, correlation_id, client_id, size_bytes)
    request.response_bytes = 50
    request.frame = request.response = "message"
    return request


def frame(correlation_id):
    return b"\0\3\0\0" + correlation_id.to_bytes(4, "big")


def test_the_first_of_a_second_are_told_of_and_the_rest_counted(observation):
    channel, repeats = Channel(), Repeats(observation, None, 2)
    told = [repeats.tally(channel, 3, now_ns, "me") is None for now_ns in range(5)]
    assert told == [True, True, False, False, False]
    tally = repeats.tally(channel, 3, 6, "me")
    tally.begin(request_of(channel), 6)
    repeats.sweep(SECOND - 1)
    assert observation.lumps == []
    repeats.sweep(2 * SECOND)
    assert observation.lumps == [(3, 1, 1, 100, 50, 6)]
    assert channel.tallies == {}


def test_the_sixteenth_and_then_ever_fewer_are_told_of_so_that_times_are_known(observation):
    channel, repeats = Channel(), Repeats(observation, None, 0)
    for begin_ns in (0, SECOND):
        told = [repeats.tally(channel, 3, begin_ns, "me") is None for _ in range(1000)]
        assert [number + 1 for number, alone in enumerate(told) if alone] == [16, 48, 112, 240, 496, 752]


def test_a_new_second_tells_of_the_one_before(observation):
    channel, repeats = Channel(), Repeats(observation, None, 1)
    assert repeats.tally(channel, 3, 0, "me") is None
    repeats.tally(channel, 3, 1, "me").begin(request_of(channel), 1)
    assert repeats.tally(channel, 3, SECOND, "me") is None, "the first of the new second"
    assert [lump[2] for lump in observation.lumps] == [1]


def test_some_apis_are_always_told_of(observation):
    channel, repeats = Channel(), Repeats(observation, None, 0)
    assert [repeats.tally(channel, 19, 0, "me") for _ in range(20)] == [None] * 20
    assert channel.tallies == {}


def test_kept_answers_are_told_of_counted_and_added_up(observation):
    channel, repeats = Channel(), Repeats(observation, None, 2)
    kept, larger = request_of(channel), request_of(channel, size_bytes=300)
    for number in range(6):
        repeats.answered(channel, frame(number), kept if number < 5 else larger, 10 * number)
    assert observation.alone == [0, 1]
    repeats.closed(channel, 90)
    assert observation.lumps == [(3, 2, 4, 600, 200, 50)]
    repeats.closed(channel, 90)
    assert len(observation.lumps) == 1


def test_what_a_channel_counts_itself_is_added_up_when_it_ends(observation):
    channel, repeats = Channel(), Repeats(observation, None, 0)
    kept, other = request_of(channel), request_of(channel, size_bytes=300)
    repeats.answered(channel, frame(1), kept, 10)
    assert channel.repeating is kept
    channel.repeated += 7
    repeats.answered(channel, frame(2), other, 20)
    assert channel.repeating is other
    channel.repeated += 1
    repeats.sweep(SECOND)
    assert observation.lumps == []
    channel.repeated += 1
    repeats.sweep(SECOND + SECOND // 4)
    assert observation.lumps == [(3, 1, 11, 8 * 100 + 3 * 300, 11 * 50, SECOND + SECOND // 4)]
    assert (channel.repeating, channel.repeated, channel.tallies) == (None, 0, {})


def test_what_a_channel_counts_itself_is_told_of_with_a_new_second(observation):
    channel, repeats = Channel(), Repeats(observation, None, 0)
    repeats.answered(channel, frame(1), request_of(channel), 10)
    channel.repeated += 7
    repeats.tally(channel, 3, SECOND + 10, "me")
    assert [lump[2] for lump in observation.lumps] == [8]
    assert channel.repeating is None


def test_channels_and_apis_have_tallies_of_their_own(observation):
    one, other, repeats = Channel(), Channel(), Repeats(observation, None, 0)
    for channel, api_key in ((one, 3), (one, 18), (other, 3)):
        repeats.tally(channel, api_key, 0, "me").begin(request_of(channel, api_key), 0)
    repeats.sweep(3 * SECOND)
    assert sorted(lump[0] for lump in observation.lumps) == [3, 3, 18]


def test_another_client_id_is_told_of_until_a_second_begins_with_it(observation):
    channel, repeats = Channel(), Repeats(observation, None, 0)
    repeats.tally(channel, 3, 0, None).begin(request_of(channel, client_id=None), 0)
    assert [repeats.tally(channel, 3, now_ns, "other") for now_ns in range(3)] == [None] * 3
    assert repeats.tally(channel, 3, 3, None) is channel.tallies[3]
    repeats.tally(channel, 3, SECOND, "other").begin(request_of(channel, client_id="other"), SECOND)
    assert repeats.tally(channel, 3, SECOND + 1, None) is None
    repeats.closed(channel, SECOND + 2)
    assert [lump[2] for lump in observation.lumps] == [1, 1]


def test_kept_answers_to_another_client_id_are_told_of(observation):
    channel, repeats = Channel(), Repeats(observation, None, 0)
    mine, theirs = request_of(channel), request_of(channel, client_id="other")
    for number in range(6):
        repeats.answered(channel, frame(number), theirs if number % 2 else mine, 10 * number)
        assert channel.repeating is (None if number % 2 else mine)
    assert observation.alone == [1, 3, 5]
    repeats.closed(channel, 90)
    assert observation.lumps == [(3, 0, 3, 300, 150, 40)]


@pytest.mark.parametrize(("size_bytes", "message"), [(100, "message"), (5000, None)])
def test_the_messages_of_a_large_request_are_not_held(observation, size_bytes, message):
    channel, repeats = Channel(), Repeats(observation, None, 0)
    request = request_of(channel, size_bytes=size_bytes)
    repeats.tally(channel, 3, 0, "me").begin(request, 0)
    assert (request.frame, request.response) == (message, message)
