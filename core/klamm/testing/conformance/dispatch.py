"""`check_assigner` and `check_scheduler`, which check parts that choose a processor or the next request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from klamm.api.context import Address, RequestContext
from klamm.api.dispatch import ConnectionLoad, Move, ProcessorAssigner, ProcessorLoad, RequestScheduler
from klamm.testing.conformance import rules
from klamm.testing.conformance.life_cycle import PartCase, ServerPartCase, rules_of
from klamm.testing.conformance.messages import first_exchange
from klamm.testing.conformance.rules import ensure, run_rules, within_patience
from klamm.wire.api_keys import ApiKey

_CAPACITY: Final = 8
_MANY: Final = 100


class _AssignerCase(PartCase):
    contract = ProcessorAssigner


def check_assigner(
    factory: Callable[[Any], ProcessorAssigner], settings: Any = None, *, other_settings: Any = None
) -> None:
    """Check that a processor assigner keeps its contract; see `check_gate`."""
    run_rules(ASSIGNER_RULES, _AssignerCase(factory, settings, other_settings))


def assigns_a_processor_that_there_is(case: _AssignerCase) -> None:
    """`assign` returns the index of one of the processors, whose number may differ at each call."""
    with case.opened() as assigner:
        for number in range(_MANY):
            loads = [ProcessorLoad(number % 3, 1e6 * one, 0.1 * one) for one in range(1 + number % 5)]
            index = within_patience("assign", assigner.assign, Address("::1", 1), loads)
            ensure(type(index) is int and 0 <= index < len(loads), f"of {len(loads)} processors it chose {index!r}")


def says_how_often_it_rebalances(case: _AssignerCase) -> None:
    """`rebalance_interval_ms` is a whole number, 0 or more."""
    with case.opened() as assigner:
        interval_ms = assigner.rebalance_interval_ms
        ensure(type(interval_ms) is int and interval_ms >= 0, f"it is {interval_ms!r}")


def moves_connections_that_there_are(case: _AssignerCase) -> None:
    """`rebalance` returns Moves of connections that it was given, each to another existing processor."""
    with case.opened() as assigner:
        for count in (1, 2, 4):
            at = {f"c-{one}-{number}": one for one in range(count) for number in range(4 if one == 0 else 1)}
            loads = [ProcessorLoad(4, 1e8, 0.99), *(ProcessorLoad(1, 1e3, 0.01) for _ in range(count - 1))]
            found = [
                [ConnectionLoad(name, 2.5e7, 0.24) for name, place in at.items() if place == one]
                for one in range(count)
            ]
            for _ in range(5):
                case.listener.advance_ms(60_000)
                for move in assigner.rebalance(loads, found):
                    fits = isinstance(move, Move) and move.connection_id in at and 0 <= move.processor < count
                    ensure(fits and at[move.connection_id] != move.processor, f"it returned {move!r}")


ASSIGNER_RULES: Final = rules_of(_AssignerCase)


class _SchedulerCase(ServerPartCase):
    """A request scheduler under test. Its factory also gets the capacity."""

    contract = RequestScheduler

    def make(self) -> Any:
        return self._factory(self.settings, _CAPACITY)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        with super().opened() as part:
            part.resized(4)
            yield part

    def request(self, number: int, api_key: int = ApiKey.METADATA) -> RequestContext:
        """Return a request of a separate client."""
        exchange = first_exchange(api_key)
        connection = self.listener.connection(client_id=f"client-{number}")
        return self.listener.request(exchange.request, exchange.version, connection)


def check_scheduler(
    factory: Callable[[Any, int], RequestScheduler], settings: Any = None, *, other_settings: Any = None
) -> None:
    """Check that a request scheduler, made by `factory(settings, capacity)`, keeps its contract; see `check_gate`."""
    run_rules(SCHEDULER_RULES, _SchedulerCase(factory, settings, other_settings))


def loses_and_repeats_no_request(case: _SchedulerCase) -> None:
    """Each request that `offer` has accepted comes out of `take` once."""
    with case.opened() as queue:
        offered = []
        for number in range(_CAPACITY):
            request = case.request(number, (ApiKey.PRODUCE, ApiKey.HEARTBEAT, ApiKey.FETCH)[number % 3])
            if queue.offer(request):
                offered.append(request)
        ensure(offered, "the empty queue took no request")
        taken = []
        for _ in offered:
            taken.append(within_patience("take", queue.take))
            queue.handled(taken[-1], 1000)
        ensure(
            sorted(map(id, taken)) == sorted(map(id, offered)), "the requests that came out are not those that went in"
        )
        ensure(queue.size() == 0, f"the size of the empty queue is {queue.size()}")


def refuses_what_it_has_no_room_for(case: _SchedulerCase) -> None:
    """`offer` returns True or False and never blocks.

    It refuses requests of one lane beyond the capacity until there is room.
    """
    with case.opened() as queue:
        answers = [within_patience("offer", queue.offer, case.request(0)) for _ in range(_CAPACITY * 4)]
        ensure(all(one is True or one is False for one in answers), f"offer returned {answers!r}")
        ensure(answers[0] and not answers[-1], f"of {len(answers)} requests {sum(answers)} were taken")
        queue.handled(within_patience("take", queue.take), 1000)
        ensure(queue.offer(case.request(0)), "there is room, but it refuses a request")


def counts_what_waits(case: _SchedulerCase) -> None:
    """`size` is the number of waiting requests, and `lane_sizes` has them by lane; a lane is hashable."""
    with case.opened() as queue:
        for number in range(4):
            request = case.request(number)
            ensure(isinstance(queue.lane(request), Hashable), f"a lane is {queue.lane(request)!r}")
            queue.offer(request)
            sizes = dict(queue.lane_sizes())
            ensure(queue.size() == number + 1, f"{number + 1} requests wait, and size is {queue.size()}")
            ensure(sum(sizes.values()) == number + 1, f"{number + 1} requests wait, and lane_sizes is {sizes}")
            ensure(all(isinstance(name, str) for name in sizes), f"lanes are named {list(sizes)}")


def wakes_one_for_each_call(case: _SchedulerCase) -> None:
    """After each `wake`, one `take` returns None, even a later one."""
    with case.opened() as queue:
        for _ in range(3):
            queue.wake()
        for number in range(3):
            taken = within_patience("take after wake", queue.take)
            ensure(taken is None, f"take number {number + 1} returned {taken!r}")


def waits_for_a_request(case: _SchedulerCase) -> None:
    """`take` waits until a request is offered."""
    with case.opened() as queue:
        taken: list[Any] = []
        thread = threading.Thread(target=lambda: taken.append(queue.take()), name="conformance", daemon=True)
        thread.start()
        thread.join(0.05)
        ensure(thread.is_alive(), f"take of an empty queue returned {taken!r}")
        request = case.request(0)
        queue.offer(request)
        thread.join(rules.PATIENCE_S)
        ensure(taken == [request], "take did not return the request that was offered")


def serves_several_threads(case: _SchedulerCase) -> None:
    """Several threads offer and take concurrently, and each request comes out once."""
    with case.opened() as queue:
        taken: list[Any] = []

        def handle() -> None:
            while (request := queue.take()) is not None:
                taken.append(request)
                queue.handled(request, 1000)

        def offer(first: int) -> None:
            deadline = time.monotonic() + rules.PATIENCE_S
            for number in range(25):
                request = case.request(first + number)
                while not queue.offer(request) and time.monotonic() < deadline:
                    time.sleep(0.0005)

        threads = [threading.Thread(target=handle, name="conformance", daemon=True) for _ in range(4)]
        offering = [threading.Thread(target=offer, args=(one * 25,), daemon=True) for one in range(4)]
        for thread in (*threads, *offering):
            thread.start()
        for thread in offering:
            thread.join(rules.PATIENCE_S * 2)
        deadline = time.monotonic() + rules.PATIENCE_S
        while len(taken) < _MANY and time.monotonic() < deadline:
            time.sleep(0.001)
        for _ in threads:
            queue.wake()
        for thread in threads:
            thread.join(rules.PATIENCE_S)
        ensure(len(taken) == len({id(one) for one in taken}) == _MANY, f"of {_MANY} requests {len(taken)} came out")
        ensure(not any(thread.is_alive() for thread in threads), "a thread was not woken")


SCHEDULER_RULES: Final = rules_of(_SchedulerCase)
