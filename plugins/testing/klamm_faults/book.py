"""`FaultBook`: the fault rules of a server, for the filters of all its listeners. Tests change it at run time."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from klamm import RequestContext
from klamm.config import check_table
from klamm.filters import Release
from klamm.wire.named_entities import Entities
from klamm_faults.kinds import FaultKind
from klamm_faults.rule import Fault, RuleSettings

SHARED_KEY: Final = "klamm.faults"
_FIRED_KEPT: Final = 10_000

_CHAOS: Final[tuple[tuple[FaultKind, dict[str, Any]], ...]] = (
    (FaultKind.ERROR, {"api": ("Produce", "Fetch"), "error": "NOT_LEADER_OR_FOLLOWER", "probability": 0.01}),
    (FaultKind.ERROR, {"api": ("FindCoordinator",), "error": "COORDINATOR_NOT_AVAILABLE", "probability": 0.05}),
    (FaultKind.COORDINATOR_MOVED, {"probability": 0.01}),
    (FaultKind.STALE_METADATA, {"probability": 0.05}),
    (FaultKind.DELAY, {"delay_ms": 200, "probability": 0.02}),
    (FaultKind.SLOW, {"delay_ms": 200, "probability": 0.02}),
    (FaultKind.THROTTLE, {"delay_ms": 100, "api": ("Produce", "Fetch"), "probability": 0.01}),
    (FaultKind.REORDER, {"delay_ms": 200, "probability": 0.01}),
    (FaultKind.DISCONNECT, {"probability": 0.005}),
    (FaultKind.DISCONNECT_AFTER, {"probability": 0.005}),
    (FaultKind.TRUNCATE, {"api": ("Fetch",), "probability": 0.002}),
)


class FaultBook:
    """The rules in order. A request gets the first fault that matches it. Any thread may call it."""

    def __init__(self) -> None:
        # Protects the numbers of rules, and changes of `faults` and `_nodes`. Readers need no lock: both are replaced
        # whole.
        self._lock = threading.Lock()
        self._number = 0
        self.seed = 0
        self.faults: tuple[Fault, ...] = ()
        self._nodes: dict[tuple[str, int], int] = {}
        self.fired: deque[tuple[str, int, str]] = deque(maxlen=_FIRED_KEPT)
        """The latest requests that got a fault: connection id, correlation id, and the fault in words."""

    def add(self, kind: str, /, **options: Any) -> Fault:
        """Add a rule after the existing ones. `options` are the keys of a rule, e.g. `api="Produce"`.

        Raises ValueError, whose message lists all problems.
        """
        name = options.pop("name", "")
        if isinstance(options.get("api"), str):
            options["api"] = [options["api"]]
        given = {key: value for key, value in options.items() if value is not None}
        problems = [f"{key}: {message}" for key, message in check_table(RuleSettings, {"kind": kind, **given})]
        if problems:
            raise ValueError("; ".join(problems))
        rule = RuleSettings(kind, **{**given, "api": tuple(given.get("api", ()))})
        problems = list(rule.complaints())
        if problems:
            raise ValueError("; ".join(problems))
        return self.put(name, rule)

    def put(self, name: str, rule: RuleSettings, seed: int | None = None) -> Fault:
        """Add a rule whose settings were validated."""
        seed = self.seed if seed is None else seed
        with self._lock:
            self._number += 1
            fault = Fault(name or f"{rule.kind}-{self._number}", rule, seed, self._remove)
            self.faults = (*self.faults, fault)
        return fault

    def chaos(self, *, seed: int | None = None, times: float = 1.0) -> list[Fault]:
        """Add a rule of every kind, each with a small probability, for tests that run for a long time.

        `times` multiplies the probabilities. With the same `seed`, equal requests get equal faults; the default is
        `self.seed`.
        """
        added = []
        for number, (kind, options) in enumerate(_CHAOS, 1):
            rule = RuleSettings(kind.value, **{**options, "probability": min(1.0, options["probability"] * times)})
            added.append(self.put(f"chaos-{number}", rule, seed))
        return added

    def note(self, fault: Fault, context: RequestContext) -> None:
        """Count a request that got a fault, and add it to the latest ones."""
        self.fired.append((context.connection.connection_id, context.correlation_id, fault.summary))
        fault.note()

    def clear(self) -> None:
        """Remove all rules."""
        self.faults = ()

    def _remove(self, fault: Fault) -> None:
        with self._lock:
            self.faults = tuple(one for one in self.faults if one is not fault)

    def learn_node(self, address: tuple[str, int], node_id: int) -> None:
        """Note the node that clients find at an address, from a Metadata response."""
        if self._nodes.get(address) != node_id:
            with self._lock:
                self._nodes = {**self._nodes, address: node_id}

    def choose(self, context: RequestContext, entities: Entities) -> Fault | None:
        """Return the fault for a request, or None."""
        node = self._nodes.get(context.listener.advertised)
        for fault in self.faults:
            if fault.take(context, entities, node):
                return fault
        return None

    def overtaken(self, context: RequestContext, entities: Entities) -> Release | None:
        """Return a function that releases the held-back request that this one overtakes, or None."""
        node = self._nodes.get(context.listener.advertised)
        for fault in self.faults:
            if fault.kind is FaultKind.REORDER and fault.concerns(context, entities, node):
                release = fault.reordering.overtaken_by(context)
                if release is not None:
                    return release
        return None
