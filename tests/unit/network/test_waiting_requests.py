"""Tests of requests that wait for room in the queue: failing schedulers, and room that appears at a bad moment."""

import threading

from klamm.api.context import RequestContext
from klamm.requests.pending import PendingRequest, RequestStage
from klamm.requests.request_channel import RequestChannel, WaitingRequests
from klamm_dispatch.schedulers import Fifo
from tests.unit.network.fakes import connection_context


class Moody(Fifo):
    """A scheduler with one lane for each client.

    It raises for clients in `hates`. `late` clients find no room at first.
    """

    hates: tuple[str, ...] = ()
    full_for: tuple[str, ...] = ()
    refuse_first: tuple[str, ...] = ()

    def offer(self, request):
        if request.client_id in self.hates:
            raise ZeroDivisionError("on purpose")
        if request.client_id in self.full_for:
            return False
        if request.client_id in self.refuse_first:
            self.refuse_first = tuple(one for one in self.refuse_first if one != request.client_id)
            return False
        return super().offer(request)

    def lane(self, request):
        return request.client_id


class Processor:
    """A processor that counts its wake-ups, and keeps the requests that it gives up."""

    def __init__(self, scheduler):
        self.woken = 0
        self.given_up = []
        self.channel = RequestChannel(scheduler)
        self.waiting = WaitingRequests(self.channel, self.wakeup, self.give_up)

    def wakeup(self):
        self.woken += 1

    def give_up(self, request, reason):
        self.given_up.append((request.context.client_id, reason))


def request(client_id):
    context = RequestContext(connection_context(), None, 0, 0, 0, client_id)
    made = PendingRequest(context, None, None, b"", 0, None)
    made.stage = RequestStage.QUEUED
    context.responder = made
    return made


def test_a_scheduler_that_raises_for_a_waiting_request_closes_only_its_connection(caplog):
    scheduler = Moody(None, 1)
    processor = Processor(scheduler)
    waiting = processor.waiting
    for client_id in ("first", "good", "bad", "also good", "good"):
        waiting.send(request(client_id))
    assert len(waiting) == 4
    scheduler.hates = ("bad",)
    waiting.retry()
    assert processor.given_up == [("bad", "the request scheduler failed: ZeroDivisionError('on purpose')")]
    assert "the request scheduler failed" in caplog.text
    served = []
    while waiting or scheduler.size():
        served.append(scheduler.take().client_id)
        waiting.retry()
    assert served == ["first", "good", "also good", "good"]
    assert len(processor.given_up) == 1


def test_a_cancelled_request_takes_no_place_in_the_queue():
    scheduler = Moody(None, 1)
    waiting = Processor(scheduler).waiting
    made = [request("a") for _ in range(3)]
    for one in made:
        waiting.send(one)
    made[1].transition_to(RequestStage.CANCELLED)
    served = []
    while waiting or scheduler.size():
        served.append(scheduler.take().responder)
        waiting.retry()
    assert served == [made[0], made[2]]


def test_a_successful_second_offer_keeps_the_wake_up_of_another_lane():
    """One request of a processor waits. The next one finds room between its refusal and its registration."""
    scheduler = Moody(None, 10)
    processor = Processor(scheduler)
    scheduler.full_for = ("waits",)
    processor.waiting.send(request("waits"))
    scheduler.refuse_first = ("lucky",)
    processor.waiting.send(request("lucky"))
    assert (len(processor.waiting), scheduler.size()) == (1, 1)
    assert processor.channel.receive_request().client_id == "lucky"
    assert processor.woken == 1
    assert processor.waiting.has_room


def test_a_processor_notices_room_that_appears_before_it_sleeps():
    """A wake-up of a processor that does not sleep has no effect. Before it sleeps, the processor checks `has_room`."""
    scheduler = Moody(None, 1)
    processor = Processor(scheduler)
    for client_id in ("first", "second"):
        processor.waiting.send(request(client_id))
    processor.waiting.retry()
    assert not processor.waiting.has_room
    processor.channel.receive_request()
    assert processor.waiting.has_room
    processor.waiting.retry()
    assert not processor.waiting
    assert not processor.waiting.has_room
    assert scheduler.size() == 1


class SlowlyRegistered:
    """A wake-up. While it is being registered, a handler takes a request."""

    def __init__(self, channel):
        self.channel = channel
        self.woken = 0
        self.handler = None

    def __call__(self):
        self.woken += 1

    def __hash__(self):
        if self.handler is None:
            self.handler = threading.Thread(target=self.channel.receive_request)
            self.handler.start()
            # The handler gets time to end, or to wait for the registration.
            self.handler.join(0.1)
        return 1


def test_a_handler_finds_a_registration_that_ends_after_its_take():
    scheduler = Moody(None, 2)
    processor = Processor(scheduler)
    for client_id in ("first", "second", "third"):
        processor.waiting.send(request(client_id))
    wake_up = SlowlyRegistered(processor.channel)
    scheduler.full_for = ("fourth",)
    assert not processor.channel.send_request(request("fourth").context, wake_up)
    wake_up.handler.join()
    processor.channel.receive_request()
    assert wake_up.woken == 1
