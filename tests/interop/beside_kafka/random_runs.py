"""Runs a random sequence on klamm and on Kafka, step by step, and shortens a sequence whose answers differ."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from klamm import ErrorCode
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.primitives import WireError
from tests.interop.beside_kafka.comparison import in_order
from tests.interop.beside_kafka.random_requests import Generator, Step
from tests.interop.beside_kafka.random_streams import HEARTBEAT
from tests.interop.beside_kafka.random_values import FAMILIES, TOPICS, Made
from tests.interop.beside_kafka.random_world import CLOSED, PENDING, World
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient
from tests.waiting import wait_until

_RUNS: Final = itertools.count(os.getpid() * 10_000)
_TRANSIENT: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors after which a client sends the request again."""
_READS: Final = ("Describe", "List", "Metadata", "OffsetFetch", "OffsetForLeaderEpoch", "FindCoordinator")
"""APIs whose requests may be sent again, because Kafka may show a change a little later."""
_CHANGES: Final = ("Create", "Delete", "Alter", "IncrementalAlter", "ElectLeaders", "UpdateFeatures")
_WAITING: Final = frozenset({"JoinGroup", "SyncGroup"})
"""APIs whose answer may wait for other members."""
_PATIENCE_S: Final = 5.0
_OURS_S: Final = 0.4
_LAG_S: Final = 1.5
_PAUSE_S: Final = 0.03
_LATE_S: Final = 2.0
_SEEN_S: Final = 0.3
Accepts: TypeAlias = Callable[["Difference"], bool]


class Difference(NamedTuple):
    """A step with the two answers."""

    at: int
    step: Step
    ours: Any
    theirs: Any

    def text(self, steps: Sequence[Step]) -> str:
        """Return the steps up to this one, and the differences between the answers."""
        lines = [
            f"{number}: {step.api} v{step.version} [{step.chooser.label}] {_show(step.made)}"
            for number, step in enumerate(steps[: self.at + 1])
        ]
        ours, theirs = _narrowed(self.ours, self.theirs)
        return "\n".join([*lines, f"  klamm: {ours}", f"  Kafka: {theirs}"])


class Pair:
    """The two servers."""

    def __init__(self, ours: Server, theirs: Server, accepts: Accepts) -> None:
        self._servers = ours, theirs
        self._accepts = accepts
        for server in self._servers:
            with WireClient(HOST, server.port) as client:
                for kind in (0, 1):
                    wait_until(partial(_has_coordinator, client, kind), within_s=60)

    def first_difference(self, family: str, steps: Sequence[Step]) -> Difference | None:
        """Run the steps under new names, and return the first difference that is not accepted. The run ends there."""
        prefix = f"r{next(_RUNS)}-"
        with World(self._servers[0], prefix) as ours, World(self._servers[1], prefix) as theirs:
            worlds = ours, theirs
            for world in worlds:
                world.create_topics(FAMILIES[family].partitions)
            _settle(worlds)
            for world in worlds:
                world.wait_for_leaders(TOPICS, FAMILIES[family].partitions)
            for index, step in enumerate(steps):
                found = _step(worlds, index, step)
                if found and not self._accepts(found):
                    return found
                if found and PENDING in (found.ours, found.theirs):
                    return None
            return None

    def shortened(self, family: str, steps: Sequence[Step], found: Difference) -> str:
        """Return a listing of the shortest steps found that end in a difference at the same API."""
        kept = list(steps[: found.at + 1])

        def again(tried: Sequence[Step]) -> Difference | None:
            other = self.first_difference(family, tried)
            return other if other and other.step.api == found.step.api else None

        best = again(kept)
        if best is None:
            return f"not again: {found.text(kept)}"
        size = max(1, len(kept) // 2)
        while size:
            at = 0
            while at < len(kept) - 1:
                tried = kept[:at] + kept[min(at + size, len(kept) - 1) :]
                other = again(tried)
                if other is None:
                    at += size
                else:
                    kept, best = tried[: other.at + 1], other
            size //= 2
        return best.text(kept)


def sequence(family: str, number: int, versions: dict[str, range], count: int) -> list[Step]:
    """Return a sequence.

    Equal arguments give equal steps. `versions` are the versions that both servers have, by API.
    """
    return Generator(family, random.Random(f"{family}-{number}"), versions).steps(count)


def _has_coordinator(client: WireClient, kind: int) -> bool:
    """Return True if the server has a coordinator of this kind. The request makes Kafka create its internal topics."""
    return bool(client.call(FindCoordinatorRequest("any", kind), 3).error_code == 0)


def _settle(worlds: tuple[World, World]) -> None:
    """Wait until the metadata of both servers have the same topics, or until a time limit."""
    deadline = time.monotonic() + _PATIENCE_S
    while worlds[0].refresh() != worlds[1].refresh() and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


def _step(worlds: tuple[World, World], index: int, step: Step) -> Difference | None:
    for label in worlds[0].waiting():
        found = _late(worlds, index, step, label)
        if found:
            return found
    try:
        ours = worlds[0].send(step, _OURS_S if step.api in _WAITING else _PATIENCE_S)
    except WireError:
        # This version cannot carry one of the values.
        return None
    theirs = worlds[1].send(step, _OURS_S / 2 if ours == PENDING else _PATIENCE_S)
    deadline = time.monotonic() + _LAG_S
    while not _same(ours, theirs) and time.monotonic() < deadline and _may_send_again(step, ours, theirs):
        time.sleep(_PAUSE_S)
        theirs = worlds[1].send(step, _PATIENCE_S)
        if _codes(ours) & _TRANSIENT:
            ours = worlds[0].send(step, _PATIENCE_S)
    if step.api == "EndTxn":
        for world in worlds:
            world.wait_for_markers(step.made.fields["transactional_id"])
    if step.api.startswith(_CHANGES):
        _settle(worlds)
    if step.api == HEARTBEAT:
        _await_internal_topics(worlds, theirs)
    return None if _same(ours, theirs) else Difference(index, step, ours, theirs)


def _await_internal_topics(worlds: tuple[World, World], answer: Any) -> None:
    """Wait until the topics exist that a heartbeat has reported as missing. Some cannot be created."""
    missing = {
        name
        for each in (answer if isinstance(answer, dict) else {}).get("status") or ()
        for name in each["status_detail"]
    }
    deadline = time.monotonic() + _LAG_S
    while time.monotonic() < deadline:
        known = [{name for name, *_ in world.refresh()} for world in worlds]
        wanted = {name for world in worlds for name in world.names(missing)}
        if all(wanted <= names for names in known):
            if missing:
                # Kafka's group coordinator sees new topics a little later than clients do.
                time.sleep(_SEEN_S)
            break
        time.sleep(_PAUSE_S)


def _late(worlds: tuple[World, World], index: int, step: Step, label: str) -> Difference | None:
    """Return the difference between the answers to a request that waited. None if they are equal."""
    ours = worlds[0].arrived(label, _OURS_S / 4)
    theirs = worlds[1].arrived(label, _OURS_S / 8 if ours == PENDING else _LATE_S)
    if ours == PENDING and theirs != PENDING:
        ours = worlds[0].arrived(label, _LATE_S)
    return None if _same(ours, theirs) else Difference(index, step, ("late", label, ours), ("late", label, theirs))


def _may_send_again(step: Step, ours: Any, theirs: Any) -> bool:
    if {PENDING, CLOSED} & {repr(ours), repr(theirs), str(ours), str(theirs)}:
        return False
    return bool(_codes(theirs) & _TRANSIENT) or step.api.startswith(_READS)


def _same(ours: Any, theirs: Any) -> bool:
    return bool(ours == theirs or in_order(ours) == in_order(theirs))


def _codes(answer: Any) -> set[int]:
    """Return all error codes of an answer."""
    if isinstance(answer, dict):
        own = {value for name, value in answer.items() if name.endswith("error_code") and isinstance(value, int)}
        return own.union(*map(_codes, answer.values()))
    return set().union(*map(_codes, answer)) if isinstance(answer, list) else set()


def _narrowed(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Return the parts of two answers that differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        parts = {name: _narrowed(each, theirs.get(name)) for name, each in ours.items() if each != theirs.get(name)}
        return {name: both[0] for name, both in parts.items()}, {name: both[1] for name, both in parts.items()}
    if isinstance(ours, list) and isinstance(theirs, list):
        left = [each for each in ours if each not in theirs], [each for each in theirs if each not in ours]
        return left if any(left) else (ours, theirs)
    return ours, theirs


def _show(value: Any) -> str:
    if isinstance(value, Made):
        name = value.kind.__name__.split("Request")[-1]
        return f"{name}({', '.join(f'{field}={_show(each)}' for field, each in value.fields.items())})"
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return f"{type(value).__name__}{tuple(value)}" if hasattr(value, "_fields") else repr(value)
