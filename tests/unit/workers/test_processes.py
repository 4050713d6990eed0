"""A question to one worker goes to the next worker if the first does not answer."""

import pytest

from klamm.workers import processes
from klamm.workers.calls import WorkerCalls
from klamm.workers.messages import MessageReader, encode

pytestmark = pytest.mark.interpreted


class Worker:
    """A worker's process that answers at once, or never if it is `mute`. It is its own channel."""

    def __init__(self, owner, number, answer, mute):
        self.asked = 0
        self._owner, self._number, self._answer, self._mute = owner, number, answer, mute
        self._sent = b""
        self.channel = self

    def send(self, message):
        self.asked += 1
        if not self._mute:
            (asked,) = MessageReader().feed(message)
            self._sent = encode("connections", ask=asked["ask"], answer=self._answer)
            self._owner.read(self._number)
        return True

    def recv(self, _size):
        if not self._sent:
            raise BlockingIOError
        sent, self._sent = self._sent, b""
        return sent


def workers_of(*answers):
    """Return the calls of serving workers. A worker whose answer is `...` does not answer."""
    owner = processes.Processes(None, None, None)
    workers = [Worker(owner, number, None if each is ... else each, each is ...) for number, each in enumerate(answers)]
    for number, worker in enumerate(workers):
        owner._open[number] = processes._Open(worker)
        owner._serving.add(number)
    return WorkerCalls(owner.ask), workers


@pytest.mark.parametrize(
    ("answers", "found", "asked"),
    [
        (("a", "b"), "a", [1, 0]),
        ((..., "b", "c"), "b", [1, 1, 0]),
        ((..., ...), None, [1, 1]),
        ((None, "b"), None, [1, 0]),
        ((), None, []),
    ],
    ids=["first", "next", "mute", "failed", "none"],
)
def test_the_next_worker_is_asked_if_one_does_not_answer(answers, found, asked):
    calls, workers = workers_of(*answers)
    assert calls.call_one("mine:function", (), 0.02) == found
    assert [each.asked for each in workers] == asked


def test_all_are_asked_at_once():
    calls, workers = workers_of("a", ..., "c")
    assert calls.call("mine:function", (), 0.02) == {0: "a", 1: None, 2: "c"}
    assert [each.asked for each in workers] == [1, 1, 1]
