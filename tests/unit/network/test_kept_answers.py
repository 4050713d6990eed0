"""Answers that are kept: found for equal requests only, whatever bytes a client sends."""

from types import SimpleNamespace

import pytest

from klamm.api.context import RequestContext
from klamm.metrics.requests import RequestCount
from klamm.requests.response_cache import ResponseCache
from tests.unit.network.fakes import connection_context

FRAME = bytearray(b"\0\3\0\14" + b"\0\0\0\1" + b"body")
ANSWER = b"\0\0\0\6" + b"\0\0\0\1" + b"yes"


class Channel:
    """What `find` needs of a channel."""

    def __init__(self, software=("unknown", "unknown")):
        self.connection = connection_context()
        self.connection.client_software_name, self.connection.client_software_version = software
        self.repeating = None
        self.repeated = 0


COUNTED = pytest.mark.parametrize("counts", [(), [RequestCount(always=False)] * 13], ids=["uncounted", "counted"])


def keep_in(answers, counts=(), software=None):
    request = RequestContext(connection_context(), None, 3, 12, 1, None)
    request.handler = SimpleNamespace(counts=counts)
    answers.keep(FRAME, lambda: 1, 1, ANSWER, request, software)
    return request


def kept(counts=()):
    answers = ResponseCache()
    keep_in(answers, counts)
    return answers


@COUNTED
def test_an_equal_request_gets_the_answer_with_its_own_correlation_id(counts):
    again = FRAME[:4] + b"\0\0\0\2" + FRAME[8:]
    assert kept(counts).find(Channel(), again) == ANSWER[:4] + b"\0\0\0\2" + ANSWER[8:]


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
    assert kept().find(Channel(), frame) is None
    assert ResponseCache().find(Channel(), frame) is None


@COUNTED
def test_a_channel_counts_what_it_repeats_and_others_are_noted(counts):
    answers, channel, noted = kept(counts), Channel(), []
    answers.note = lambda *what: noted.append(what)
    answers.find(channel, FRAME)
    ((_, frame, request),) = noted
    assert (frame, request.api_key, channel.repeated) == (FRAME, 3, 0)
    channel.repeating = request
    answers.find(channel, FRAME)
    assert (len(noted), channel.repeated) == (1, 1)


def test_each_answer_is_counted_and_one_is_sampled_when_that_is_due():
    answers, count = ResponseCache(), RequestCount(always=False)
    request = keep_in(answers, [count] * 13)
    count.until_sample = before = 2
    for sampled in (None, None, request):
        assert answers.find(Channel(), FRAME) is not None
        assert answers.sampled is sampled
    assert before - count.until_sample == 3


def test_none_is_sampled_where_nothing_is_counted():
    answers = kept()
    assert answers.find(Channel(), FRAME) is not None
    assert answers.sampled is None


def test_nothing_is_kept_while_that_is_not_allowed():
    answers = kept()
    answers.allow(False)
    assert answers.find(Channel(), FRAME) is None
    keep_in(answers)
    assert answers.find(Channel(), FRAME) is None
    answers.allow(True)
    keep_in(answers)
    assert answers.find(Channel(), FRAME) is not None


def test_what_tells_the_client_software_is_kept_for_those_who_have_told_it():
    answers = ResponseCache()
    keep_in(answers, software=("librdkafka", "2.1"))
    assert answers.find(Channel(("librdkafka", "2.1")), FRAME) == ANSWER
    for other in (("unknown", "unknown"), ("librdkafka", "2.2"), ("kafka-python", "2.1")):
        assert answers.find(Channel(other), FRAME) is None
