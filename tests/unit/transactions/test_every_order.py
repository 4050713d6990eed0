"""Tests of transactions with every order of actions of two producers with one transactional id, and of the broker.

Each write, marker and sync is a step of its own, and a crash may come before each. A state is reached again by the same
steps, so nothing must be copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from klamm import ErrorCode, KafkaError
from klamm_broker.transactions.ends import ProducerIdAndEpoch
from tests.unit.transactions.transaction_world import CLIENT_VERSION, TOPIC, Entry, FakeFlusher, FakeLog, World

# The classes of a compiled broker do not accept a queue instead of a thread.
pytestmark = pytest.mark.interpreted

ID = "x"
CRASHES = ("kill", "lose_power", "store_fails")


@dataclass(eq=False)
class Producer:
    """A client: its identity, its waiting request, and what it knows about its transactions.

    `written` has the acknowledged values of each transaction, `asked` the requested ends, and `ended` the acknowledged
    ends.
    """

    name: str
    identity: ProducerIdAndEpoch | None = None
    waits_for: str = ""
    written: list[list[tuple[int, str]]] = field(default_factory=list)
    asked: set[tuple[int, str]] = field(default_factory=set)
    ended: dict[int, bool] = field(default_factory=dict)


class Run:
    """Two producers and one coordinator, after some steps."""

    def __init__(self, make_world: type[World]) -> None:
        self.world = make_world(partitions=2)
        self.producers = [Producer("a"), Producer("b")]
        self.newest = ProducerIdAndEpoch()
        self._life = 0

    def possible(self, requests: int, crashes: int) -> Iterator[str]:
        """Yield the names of the possible next steps, if this number of requests and crashes may still come."""
        world = self.world
        for name, waiting in (("store", world.store), ("flusher", world.flusher), ("worker", world.worker)):
            if waiting.waiting:
                yield name
        if crashes:
            yield from ("kill", "lose_power")
            if world.store.waiting:
                yield "store_fails"
        for producer in self.producers if requests else ():
            if producer.waits_for:
                continue
            yield f"{producer.name} init"
            if producer.identity is not None:
                yield from (f"{producer.name} write {index}" for index in range(len(world.logs)))
                if producer.written[-1]:
                    yield from (f"{producer.name} commit", f"{producer.name} abort")

    def do(self, step: str) -> None:
        """Take a step."""
        world = self.world
        if step in ("kill", "lose_power"):
            self._life += 1
            for each in self.producers:
                each.waits_for = ""
            world.kill() if step == "kill" else world.lose_power()
        elif step in ("store", "store_fails"):
            world.store.step(fails=step == "store_fails")
        elif step in ("flusher", "worker"):
            (world.flusher if step == "flusher" else world.worker).waiting.popleft()()
        else:
            name, action = step.split(" ", 1)
            (producer,) = (each for each in self.producers if each.name == name)
            producer.waits_for = action
            self._ask(producer, action)

    def _ask(self, producer: Producer, action: str) -> None:
        life = self._life
        coordinator = self.world.coordinator

        def identified(error: ErrorCode, identity: ProducerIdAndEpoch) -> None:
            if life != self._life:
                return
            producer.waits_for = ""
            if action == "init":
                if error:
                    return
                producer.written.append([])
            elif error in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR):
                # The client repeats its request.
                return
            elif error:
                producer.identity = None
                return
            else:
                producer.ended[len(producer.written) - 1] = action == "commit"
                producer.written.append([])
            self._is_now(producer, identity)

        if action == "init":
            coordinator.init_producer_id(ID, 60_000, None, identified)
        elif action in ("commit", "abort"):
            assert producer.identity is not None
            producer.asked.add((len(producer.written) - 1, action))
            coordinator.end(
                ID, producer.identity, identified, committed=action == "commit", client_version=CLIENT_VERSION
            )
        else:
            self._write(producer, int(action.split()[1]), life)

    def _is_now(self, producer: Producer, identity: ProducerIdAndEpoch) -> None:
        producer.identity = self.newest = identity

    def _write(self, producer: Producer, index: int, life: int) -> None:
        identity = producer.identity
        assert identity is not None
        transaction = len(producer.written) - 1
        value = f"{producer.name}{transaction}.{len(producer.written[-1])}"

        def added(error: ErrorCode) -> None:
            if life != self._life:
                return
            producer.waits_for = ""
            try:
                if error:
                    raise KafkaError(error)
                log = self.world.logs[index]
                self.world.coordinator.within(ID, identity, (TOPIC, index), lambda: log.append(Entry(identity, value)))
            except KafkaError as refused:
                if refused.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR):
                    producer.identity = None
                return
            assert identity == self.newest, "a fenced producer writes"
            producer.written[transaction].append((index, value))

        self.world.coordinator.add_partitions(ID, identity, [(TOPIC, index)], CLIENT_VERSION, added)

    def state(self) -> tuple[Any, ...]:
        """Return everything that determines the future, and what the producers know."""
        clients = tuple(
            (each.identity, each.waits_for, str(each.written), frozenset(each.asked), frozenset(each.ended.items()))
            for each in self.producers
        )
        return self.world.state(), clients, self.newest

    def check(self) -> None:
        """Run all remaining steps. Check that transactions are whole, and agree with the answers to their producers.

        A new producer must be able to continue. The run cannot be used afterwards.
        """
        self.world.settle()
        another = Producer("n")
        self.producers.append(another)
        for step in ("n init", "n init", "n write 0", "n write 1", "n commit"):
            if step == "n init" and another.identity is not None:
                continue
            self.do(step)
            self.world.settle()
        seen = [log.committed() for log in self.world.logs]
        for producer in self.producers:
            for number, written in enumerate(producer.written):
                found = [value in seen[index] for index, value in written]
                assert len(set(found)) < 2, f"a torn transaction: {written}"
                if number in producer.ended and found:
                    word = "lost" if producer.ended[number] else "aborted and read"
                    assert found[0] == producer.ended[number], f"{word}: {written}"
                elif found and found[0]:
                    assert (number, "commit") in producer.asked, f"committed by itself: {written}"
        assert another.ended == {0: True}, "nothing can go on"
        for values in seen:
            assert len(values) == len(set(values)), "read twice"


def explore(requests: int, crashes: int, make_world: type[World] = World) -> int:
    """Check every state that can be reached with this number of requests and crashes. Return the number of states."""

    def run(steps: Sequence[str]) -> Run:
        made = Run(make_world)
        for step in steps:
            made.do(step)
        return made

    first: tuple[str, ...] = ()
    known = set()
    waiting = deque([(first, requests, crashes)])
    while waiting:
        steps, requests_left, crashes_left = waiting.popleft()
        for step in run(steps).possible(requests_left, crashes_left):
            after = (*steps, step)
            left = requests_left - (" " in step), crashes_left - (step in CRASHES)
            try:
                reached = run(after)
                state = (*reached.state(), left)
                if state in known:
                    continue
                known.add(state)
                reached.check()
            except AssertionError as error:
                problem = str(error).partition("\n")[0]
                raise AssertionError(f"{problem} after {', '.join(after)}") from error
            waiting.append((after, *left))
    return len(known)


def test_two_producers_in_every_order() -> None:
    assert explore(requests=3, crashes=1) > 700


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_producers_in_every_longer_order() -> None:
    print(f"{explore(requests=5, crashes=2)} states")


class ForgetfulFlusher(FakeFlusher):
    """A flusher that reports a log as synced although it is not."""

    def request(self, log: FakeLog, offset: int, on_flushed: Any) -> None:
        self.submit(lambda: on_flushed(None))


class WithoutSync(World):
    flusher_class = ForgetfulFlusher


class WithoutAbort(World):
    """A coordinator that leaves open transactions unchanged at a start after a power failure."""

    def abort_open(self) -> None:
        """Do nothing, although the transactions must be aborted."""


def test_a_commit_before_its_records_are_synced_is_found() -> None:
    with pytest.raises(AssertionError, match="^lost: .* after a init, store, a write 0, .*lose_power"):
        explore(requests=3, crashes=1, make_world=WithoutSync)


def test_a_transaction_that_continues_after_a_power_failure_is_found() -> None:
    with pytest.raises(AssertionError, match="^(lost|a torn transaction): .*lose_power"):
        explore(requests=4, crashes=1, make_world=WithoutAbort)
