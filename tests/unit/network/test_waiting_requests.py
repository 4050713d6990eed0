"""Requests that wait for room in the queue, with a scheduler that raises."""

from types import SimpleNamespace

from klamm.api.context import RequestContext
from klamm.network.channel import ChannelState
from klamm.requests.request_channel import RequestChannel, WaitingRequests
from klamm_dispatch.schedulers import Fifo
from tests.unit.network.fakes import connection_context


class Moody(Fifo):
    """One lane for each client; raises for those that `hates` names."""

    hates: tuple[str, ...] = ()

    def offer(self, request):
        if request.client_id in self.hates:
            raise ZeroDivisionError("on purpose")
        return super().offer(request)

    def lane(self, request):
        return request.client_id


class Owner:
    """Stands for the processor: keeps what it is asked to close."""

    def __init__(self):
        self.closed = []

    def wakeup(self):
        pass

    def close_connection(self, request, reason):
        self.closed.append((request.client_id, reason))


def request(client_id):
    made = RequestContext(connection_context(), None, 0, 0, 0, client_id)
    made.owner = SimpleNamespace(state=ChannelState.READY)
    return made


def test_a_scheduler_that_raises_for_a_waiting_request_costs_that_connection_only(caplog):
    scheduler, owner = Moody(None, 1), Owner()
    waiting = WaitingRequests(RequestChannel(scheduler), owner)
    for client_id in ("first", "good", "bad", "also good", "good"):
        waiting.send(request(client_id))
    assert len(waiting) == 4
    scheduler.hates = ("bad",)
    waiting.retry()
    assert owner.closed == [("bad", "the request scheduler failed: ZeroDivisionError('on purpose')")]
    assert "the request scheduler failed" in caplog.text
    served = []
    while waiting or scheduler.size():
        served.append(scheduler.take().client_id)
        waiting.retry()
    assert served == ["first", "good", "also good", "good"]
    assert len(owner.closed) == 1
