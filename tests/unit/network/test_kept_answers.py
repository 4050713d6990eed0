"""Answers that are kept: found for equal requests only, whatever bytes a client sends."""

from types import SimpleNamespace

import pytest

from klamm.context import RequestContext
from klamm.network.kept_answers import CountedAnswers, KeptAnswers
from klamm.network.recorder import RequestCount
from tests.unit.network.fakes import connection_context

FRAME = bytearray(b"\0\3\0\14" + b"\0\0\0\1" + b"body")
ANSWER = b"\0\0\0\6" + b"\0\0\0\1" + b"yes"


class Channel:
    """What `find_for` needs of a channel."""

    def __init__(self):
        self.repeating = None
        self.repeated = 0


def kept_in(answers):
    request = RequestContext(connection_context(), None, 3, 12, 1, None)
    request.handler = SimpleNamespace(counts=[RequestCount(always=False)] * 13)
    answers.keep(FRAME, lambda: 1, 1, ANSWER, request)
    return answers


@pytest.mark.parametrize("kind", [KeptAnswers, CountedAnswers])
def test_an_equal_request_gets_the_answer_with_its_own_correlation_id(kind):
    again = FRAME[:4] + b"\0\0\0\2" + FRAME[8:]
    assert kept_in(kind()).find(again) == ANSWER[:4] + b"\0\0\0\2" + ANSWER[8:]
    assert kept_in(kind()).find_for(Channel(), again) == ANSWER[:4] + b"\0\0\0\2" + ANSWER[8:]


@pytest.mark.parametrize("kind", [KeptAnswers, CountedAnswers])
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
def test_any_other_frame_gets_none(kind, frame):
    assert kept_in(kind()).find(frame) is None
    assert kept_in(kind()).find_for(Channel(), frame) is None
    assert kind().find(frame) is None


@pytest.mark.parametrize("kind", [KeptAnswers, CountedAnswers])
def test_a_channel_counts_what_it_repeats_and_others_are_noted(kind):
    answers, channel, noted = kept_in(kind()), Channel(), []
    answers.note = lambda *what: noted.append(what)
    answers.find_for(channel, FRAME)
    ((_, frame, request),) = noted
    assert (frame, request.api_key, channel.repeated) == (FRAME, 3, 0)
    channel.repeating = request
    answers.find_for(channel, FRAME)
    assert (len(noted), channel.repeated) == (1, 1)


@pytest.mark.parametrize("kind", [KeptAnswers, CountedAnswers])
def test_nothing_is_kept_while_that_is_not_allowed(kind):
    answers = kept_in(kind())
    answers.allow(False)
    assert answers.find(FRAME) is None
    assert kept_in(answers).find(FRAME) is None
    answers.allow(True)
    assert kept_in(answers).find(FRAME) is not None
