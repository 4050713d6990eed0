"""Clients of a simulated server that do not end are named, with what they wait for."""

from __future__ import annotations

import pytest

from klamm.testing import SimulatedServer
from tests.unit.testing.simulated_clients import Ask, NoEndError, Workload, drive
from tests.unit.testing.simulated_script import TOPIC, fetch_request


def short() -> Ask:
    yield 10


def waiting() -> Ask:
    """Wait for a record that does not come."""
    while True:
        yield fetch_request(0, max_wait_ms=100_000), 12


def inner() -> Ask:
    yield 500_000


def sleeping() -> Ask:
    while True:
        yield from inner()


def hurried() -> Ask:
    """Ask again at once."""
    while True:
        yield fetch_request(0, max_wait_ms=0), 12


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (waiting, r"after 50 simulated seconds \(seed 5\): reader waits for Fetch 12 since 50.0 s, in waiting"),
        (sleeping, r"after 50 simulated seconds \(seed 5\): reader sleeps for 450.0 s more, in inner"),
        (hurried, r"turns at one moment \(seed 5\): reader waits for Fetch 12 since 0.0 s, in hurried"),
    ],
)
def test_clients_that_do_not_end_are_named(script, words):
    with SimulatedServer(seed=5) as server:
        work = Workload(server)
        work.create(server.connect(), TOPIC, 1)
        with pytest.raises(NoEndError, match=words) as raised:
            drive(server, {"short": short(), "reader": script()}, work.choose, limit_s=50)
        # Where the time stands still, it does not come to its end.
        assert ("short sleeps" in str(raised.value)) == (script is hurried)
