"""Tests of groups with three members in their own processes. Members and the server are killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from tests.interop.clients import CLIENTS, Client
from tests.interop.clients.base import GIVE_UP_S, POLL_RECORDS, Member
from tests.interop.inspection import wait_for_stable_group
from tests.interop.workload import (
    CODECS,
    PARTITIONS,
    RECORDS,
    Consumed,
    KeyValue,
    check_at_least_once,
    check_read_back,
    records,
)
from tests.peers.server import Server

pytestmark = pytest.mark.interop

MEMBERS = 3
REBALANCES_OF_A_FAULT = 2
REPEATABLE_AFTER_ONE_FAULT = REBALANCES_OF_A_FAULT * PARTITIONS * POLL_RECORDS
"""The number of records that a group may read again: one poll for each partition at each rebalance."""


def codec_of(client: Client, shift: int = 0) -> str:
    """Return another codec for each client. `test_codecs` combines all clients with all codecs."""
    return CODECS[(list(CLIENTS).index(client.name) + shift) % len(CODECS)]


every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


@contextmanager
def group_of_three(client: Client, server: Server, topic: str, directory: Path) -> Iterator[list[Member]]:
    """Start members that share the topic's partitions. They leave at the end of the block."""
    with ExitStack() as stack:
        outputs = [directory / f"member-{number}" for number in range(MEMBERS)]
        members = [stack.enter_context(client.join(server.bootstrap, topic, topic, output)) for output in outputs]
        wait_for_stable_group(server, topic, MEMBERS)
        yield members


@contextmanager
def producing(
    client: Client, server: Server, topic: str, source: Iterator[KeyValue], codec: str
) -> Iterator[Future[None]]:
    """Run `produce_all` during the block, on another thread. Its exceptions are raised at the end of the block."""
    with ThreadPoolExecutor(1) as executor:
        produced = executor.submit(client.produce_all, server.bootstrap, topic, source, codec)
        yield produced
        produced.result()


def wait_for(alarm: Event, produced: Future[None]) -> None:
    """Wait until the event is set. Raises earlier exceptions of the producer, or TimeoutError."""
    deadline = time.monotonic() + GIVE_UP_S
    while not alarm.wait(0.1):
        if produced.done():
            produced.result()
        if time.monotonic() > deadline:
            raise TimeoutError("the producer is stuck")


def wait_until_all_is_read(members: list[Member]) -> list[list[Consumed]]:
    """Return the records that each member has read, once all were read or `GIVE_UP_S` has passed."""
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        shares = [member.consumed() for member in members]
        if len({record.number for share in shares for record in share}) == RECORDS or time.monotonic() > deadline:
            return shares
        time.sleep(0.2)


def repeatable(client: Client, faults: int) -> int:
    """Return how many records a group of this client may read again."""
    return RECORDS if client.commits_on_a_timer else faults * REPEATABLE_AFTER_ONE_FAULT


@every_client
def test_a_group_survives_the_death_of_a_member(server: Server, topic: str, client: Client, tmp_path: Path) -> None:
    client.create_topic(server.bootstrap, topic)
    killed = Event()
    with group_of_three(client, server, topic, tmp_path) as members:
        # The second half is produced when the member is dead.
        alarms = {RECORDS // 2: lambda: killed.wait(GIVE_UP_S)}
        with producing(client, server, topic, records(alarms=alarms), codec_of(client)):
            for member in members:
                member.wait_for_records()
            members[0].kill9()
            killed.set()
        shares = wait_until_all_is_read(members)
        wait_for_stable_group(server, topic, MEMBERS - 1)
    check_at_least_once(shares, repeatable(client, faults=1))
    assert all(shares), [len(share) for share in shares]


@every_client
def test_clients_continue_after_the_server_restarts(server: Server, topic: str, client: Client, tmp_path: Path) -> None:
    client.create_topic(server.bootstrap, topic)
    a_third, two_thirds, killed = Event(), Event(), Event()
    alarms: dict[int, Callable[[], object]] = {
        RECORDS // 3: a_third.set,
        RECORDS * 2 // 3: two_thirds.set,
        # The producer cannot finish before the server is stopped, however slow the test is.
        RECORDS - 1: lambda: killed.wait(GIVE_UP_S),
    }
    with group_of_three(client, server, topic, tmp_path) as members:
        with producing(client, server, topic, records(alarms=alarms), codec_of(client, 1)) as produced:
            wait_for(a_third, produced)
            server.restart()
            wait_for(two_thirds, produced)
            server.kill9()
            killed.set()
            server.start()
        shares = wait_until_all_is_read(members)
        assert all(member.running for member in members), [member.errors() for member in members]
    check_at_least_once(shares, repeatable(client, faults=2))
    check_read_back(client.consume_all(server.bootstrap, topic, RECORDS))
