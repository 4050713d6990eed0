"""Tests of consumer groups with every order of joins, heartbeats, losses and leaves that a small group can have.

A state is the content of the store and the knowledge of each client. Each step starts the coordinator on the store of a
state, so each step is also a crash.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from consumers import Consumer, settle
from groups_playbook import REBALANCE_MS, Playbook

from klamm import ErrorCode
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer import reconciliation

ACTIONS = ("beat", "lost", "leave", "rejoin")
"""The actions: a heartbeat, a heartbeat whose answer is lost, a leave, and a restart of the client."""

FULL = {"rebalance_timeout_ms": REBALANCE_MS, "topics": ["t"]}


class Client(NamedTuple):
    """The knowledge of a client. The epoch is 0 if the client is not a member, as far as it knows.

    After a lost answer it `is_unsure` and sends a full heartbeat.
    """

    epoch: int = 0
    owned: tuple[tuple[bytes, frozenset[int]], ...] = ()
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """A state.

    `rows` is a digest of the database. `left` is the number of joins, leaves and restarts of clients that the
    exploration may still add after this state.
    """

    rows: bytes
    clients: tuple[Client, ...]
    left: int
    database: bytes = field(compare=False, repr=False)


class Explorer:
    """Explores the states of a group with `members` members and a topic of `partitions` partitions."""

    def __init__(self, path: Path, members: int, partitions: int) -> None:
        self._path = path
        self._members = members
        self._partitions = partitions

    def first(self, changes: int) -> State:
        return self._state(self._started(b""), (Client(),) * self._members, changes)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield each possible next step, and the state after it."""
        for number, client in enumerate(state.clients):
            for action in ACTIONS:
                changes = client.epoch == 0 or action in ("leave", "rejoin")
                if changes and not state.left or action in ("leave", "rejoin") and not client.epoch:
                    continue
                play = self._started(state.database)
                clients = list(state.clients)
                clients[number] = self._act(play, number, client, action)
                yield f"m{number} {action}", self._state(play, tuple(clients), state.left - changes)

    def _act(self, play: Playbook, number: int, client: Client, action: str) -> Client:
        one = self._consumer(play, number, client)
        if action == "leave":
            play.beat(one.member_id, -1)
            return Client()
        if action == "rejoin":
            one.epoch = 0
        if one.beat(**(FULL if client.is_unsure else {})).error_code is not ErrorCode.NONE:
            # The fenced client gives up its partitions.
            return Client()
        if action == "lost":
            return client._replace(is_unsure=client.epoch > 0)
        return Client(one.epoch, tuple(sorted(one.owned.items())))

    def check(self, state: State) -> None:
        """Check that no partition has two readers, and that heartbeats alone assign all partitions evenly.

        The second check needs clients that all have an epoch.
        """
        held = [(topic, index) for client in state.clients for topic, all_ in client.owned for index in all_]
        assert len(held) == len(set(held)), "two readers"
        play = self._started(state.database)
        members = [self._consumer(play, number, client) for number, client in enumerate(state.clients) if client.epoch]
        for each in members:
            if each.beat(**FULL).error_code is not ErrorCode.NONE:
                each.epoch = 0
        # If the answer to a client's first heartbeat was lost, the client has no epoch, but the group has it as a
        # member and keeps partitions for it.
        if not any(client.epoch == 0 for client in state.clients):
            settle(*members)
            counts = sorted(each.count() for each in members)
            assert sum(counts) == self._partitions, "a partition without a reader"
            assert counts[-1] - counts[0] <= 1, "uneven"
        play.close()

    def _consumer(self, play: Playbook, number: int, client: Client) -> Consumer:
        one = Consumer(play, f"m{number}")
        owned: Partitions = dict(client.owned)
        one.epoch, one.owned = client.epoch, owned
        return one

    def _started(self, database: bytes) -> Playbook:
        for each in self._path.parent.iterdir():
            each.unlink()
        if database:
            self._path.write_bytes(database)
        play = Playbook(self._path)
        play.topics.set("t", self._partitions)
        return play

    def _state(self, play: Playbook, clients: tuple[Client, ...], left: int) -> State:
        play.close()
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            rows = hashlib.sha256("\n".join(connection.iterdump()).encode()).digest()
            return State(rows, clients, left, connection.serialize())


@pytest.fixture
def path() -> Iterator[Path]:
    """Yield the path of a database. Its folder is in memory if the system has `/dev/shm`, because each step syncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder) / "klamm.db"


def explore(path: Path, members: int, partitions: int, changes: int) -> int:
    """Check every state that can be reached with at most `changes` joins, leaves and restarts of clients.

    Return the number of states.
    """
    explorer = Explorer(path, members, partitions)
    first = explorer.first(changes)
    ways: dict[State, tuple[str, ...]] = {replace(first, database=b""): ()}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for name, found in explorer.steps(state):
            # The database is kept only as long as its state waits.
            after = replace(found, database=b"")
            if after in ways:
                continue
            ways[after] = (*ways[state], name)
            waiting.append(found)
            try:
                explorer.check(found)
            except AssertionError as error:
                problem = str(error).partition("\n")[0]
                raise AssertionError(f"{problem} after {', '.join(ways[after])}") from error
    return len(ways)


def test_two_members_in_every_order(path: Path) -> None:
    assert explore(path, members=2, partitions=3, changes=3) > 300


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_members_in_every_order(path: Path) -> None:
    found = explore(path, members=3, partitions=4, changes=3)
    print(f"{found} states")


def test_a_broken_revocation_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this coordinator a member need not have revoked a partition before another gets it."""
    monkeypatch.setattr(reconciliation, "_holds", lambda _owned, _revoked: False)
    with pytest.raises(AssertionError, match="two readers after m0 beat, m1 beat, m0 lost, m1 beat"):
        explore(path, members=2, partitions=2, changes=2)
