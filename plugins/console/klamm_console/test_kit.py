"""`TestKit`: the features that only a server for tests has: faults, nodes that can stop, a clock that can be moved, and
a timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from klamm import ServerServices
from klamm.testing import read_timeline
from klamm_console.routes import Argument, ArgumentKind

_RULE: Final[Mapping[str, ArgumentKind]] = {
    "api": "string",
    "topic": "string",
    "group": "string",
    "client": "string",
    "error": "string",
    "delay_ms": "integer",
    "count": "integer",
    "probability": "number",
}
"""The keys of a fault's rule that the page can set in addition to `kind`."""
_MOST_MS: Final = 366 * 24 * 3_600_000
_COLUMNS: Final = 110
_SHOWN_CHARACTERS: Final = 200_000


class TestKit:
    """The features of a test server. Any thread may call it. It raises LookupError for a missing feature, and
    ValueError for a wrong argument.
    """

    def __init__(self, services: ServerServices, before_advance: Callable[[int], None]) -> None:
        """`before_advance` is called with milliseconds before the time moves."""
        self._services = services
        self._before_advance = before_advance

    @property
    def is_there(self) -> bool:
        """Return True if the server has any of these features."""
        return any(each is not None for each in (self._part("faults"), self._part("recording"), self._advance))

    def views(self) -> Iterator[tuple[str, str, Callable[[], Any]]]:
        """Yield the name, the summary and the function of each view."""
        yield "test_kit", "Faults, nodes and time of a server for tests.", self.overview
        yield "timeline", "The end of the timeline, as text.", self.timeline

    def actions(self) -> Iterator[tuple[str, str, Callable[[Mapping[str, Any]], Any], tuple[Argument, ...]]]:
        """Yield the name, the summary, the function and the arguments of each action."""
        keys = (Argument(name, f"The key `{name}` of `[[faults]]`.", _RULE[name], required=False) for name in _RULE)
        kind = Argument("kind", "E.g. `error` or `disconnect`.")
        yield "add_fault", "Add a rule of faults.", self.add_fault, (kind, *keys)
        yield "add_chaos", "Add a fault of every kind, each rare.", lambda _: self.add_chaos(), ()
        yield "clear_faults", "Remove all rules of faults.", lambda _: self.clear_faults(), ()
        yield (
            "set_node",
            "Start or stop a node.",
            lambda body: self.set_node(body.get("node"), body.get("running")),
            (Argument("node", "Its id.", "integer"), Argument("running", "True starts it.", "boolean")),
        )
        yield (
            "advance_time",
            "Move the server's time forward.",
            lambda body: self.advance(body.get("advance_ms")),
            (Argument("advance_ms", "Milliseconds, up to a year.", "integer"),),
        )

    def overview(self) -> dict[str, Any]:
        """Return the faults, the nodes and the time; None for a feature that the server does not have."""
        faults, nodes = self._part("faults"), self._part("nodes")
        return {
            "faults": None
            if faults is None
            else [{"name": each.name, "kind": each.kind.value, "fired": each.fired} for each in faults.faults],
            "nodes": None if nodes is None else nodes.describe(),
            "wall_ms": None if self._advance is None else self._services.clock.wall_ms(),
            "has_timeline": self._part("recording") is not None,
        }

    def timeline(self) -> dict[str, Any]:
        """Return the end of the timeline, as text."""
        found = read_timeline(self._services)
        text = found.text(_COLUMNS) if found else ""
        return {"text": text[-_SHOWN_CHARACTERS:]}

    def add_fault(self, rule: Mapping[str, Any]) -> str:
        """Add a rule. Return its name. Raises ValueError, whose message lists all problems."""
        if not isinstance(rule.get("kind"), str):
            raise ValueError("kind must be a text, e.g. disconnect")
        options = {key: rule[key] for key in _RULE if rule.get(key) not in (None, "")}
        name: str = self._needed("faults").add(rule["kind"], **options).name
        return name

    def add_chaos(self) -> None:
        """Add a fault of every kind, each with a small probability."""
        self._needed("faults").chaos()

    def clear_faults(self) -> None:
        """Remove all rules."""
        self._needed("faults").clear()

    def set_node(self, node: Any, running: Any) -> None:
        """Start or stop a node of the broker."""
        if type(node) is not int or type(running) is not bool:
            raise ValueError("node must be a number, and running true or false")
        nodes = self._needed("nodes")
        (nodes.start if running else nodes.stop)(node)

    def advance(self, advance_ms: Any) -> None:
        """Move the server's time forward."""
        if type(advance_ms) is not int or not 0 < advance_ms <= _MOST_MS:
            raise ValueError(f"advance_ms must be a number from 1 to {_MOST_MS}")
        if self._advance is None:
            raise LookupError("the time of this server is the machine's; start it with --ephemeral")
        self._before_advance(advance_ms)
        self._advance(advance_ms)
        self._services.scheduler.wake()

    @property
    def _advance(self) -> Any:
        return getattr(self._services.clock, "advance_ms", None)

    def _part(self, name: str) -> Any:
        return self._services.shared.find(f"klamm.{name}")

    def _needed(self, name: str) -> Any:
        return self._services.shared.needed(f"klamm.{name}", f"this server has no {name}")
