"""A timer without a delay does not wait for requests that clients may already have sent."""

import pytest

from klamm.runtime import Scheduler
from klamm.testing import ManualClock
from klamm_broker.groups.expiration import ExpirationScheduler


@pytest.mark.parametrize(("delay_ms", "called"), [(0, True), (1, False)])
def test_only_a_timer_with_a_delay_waits_for_unread_requests(delay_ms: int, called: bool) -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    calls: list[int] = []
    ExpirationScheduler(clock, scheduler, lambda: 0).schedule(delay_ms, lambda: calls.append(1))
    clock.advance_ms(delay_ms)
    scheduler.run_due()
    assert bool(calls) is called
