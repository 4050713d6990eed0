"""`Timeline`: the moments of a server up to now, or up to a failure, in lanes for clients and nodes."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.logs.escaping import escape_control_characters
from klamm.shared.tables import SharedState
from klamm.testing.timeline.moments import Lanes, Mark, Moment, fold, moment_of
from klamm.testing.timeline.page import render_page

_SIGNS: Final = {
    Mark.FAILURE: "#",
    Mark.FAULT: "!",
    Mark.ERROR: "x",
    Mark.REBALANCE: "~",
    Mark.LEADER: ">",
    Mark.NODE: ">",
    Mark.TRANSACTION: "=",
}
_LEGEND: Final = "! fault, x error, ~ rebalance, > leader or node, = transaction"
_LETTERS: Final = string.ascii_lowercase


def render_text(timeline: Lanes, columns: int, lines: int) -> str:
    """Return the latest `lines` lines of a timeline. No line is longer than `columns`."""
    letters = dict(zip(timeline.clients, _LETTERS, strict=False))
    head = [f"{letter} {client}" for client, letter in letters.items()]
    head += [f"{_digit(node)} node {node}" for node in timeline.nodes]
    found = [_LEGEND, *head]
    shown = timeline.moments[-lines:]
    hidden = timeline.dropped + len(timeline.moments) - len(shown)
    if hidden:
        found.append(f"... {hidden:,} lines before")
    for moment in shown:
        lanes = [letter if client == moment.client else "." for client, letter in letters.items()]
        lanes += [_digit(node) if node in moment.nodes else "." for node in timeline.nodes]
        at_s = timeline.seconds_before_end(moment)
        found.append(f"{at_s:>9}  {''.join(lanes)} {_SIGNS.get(moment.mark, ' ')} {moment.shown}")
    return "\n".join(_cut(line, columns) for line in found)


def _digit(node: int) -> str:
    return str(node % 10)


def _cut(line: str, columns: int) -> str:
    line = escape_control_characters(line)
    return line if len(line) <= columns else line[: columns - 3] + "..."


MOMENTS_KEPT: Final = 1000
_CLIENT_LANES: Final = 20
_OTHERS: Final = "other clients"
_NO_CLIENT_ID: Final = "no client id"


class Sources(NamedTuple):
    """The content of a timeline, from the parts of a server that keep it. A field is empty if its part is missing.

    `requests` come from a recording, `fired` from the rules of faults, `changes` from the nodes of `klamm_broker`.
    """

    requests: Sequence[Any] = ()
    fired: Iterable[tuple[str, int, str]] = ()
    changes: Iterable[Any] = ()
    node_ids: Sequence[int] = (0,)
    names: Mapping[bytes, str] = {}


def read_sources(shared: SharedState) -> Sources:
    """Return the content that the parts of a server have kept."""
    recording, faults, nodes = map(shared.find, ("klamm.recording", "klamm.faults", "klamm.nodes"))
    return Sources(
        [] if recording is None else recording.requests(),
        [] if faults is None else faults.fired.copy(),
        [] if nodes is None else nodes.changes,
        (0,) if nodes is None else [each["id"] for each in nodes.describe()],
        {} if recording is None else recording.topic_names(),
    )


def moments_of(sources: Sources) -> list[Moment]:
    """Return a moment for each request and change, in no particular order."""
    faults = {(connection_id, correlation_id): text for connection_id, correlation_id, text in sources.fired}
    ids = sources.node_ids
    found = [
        moment_of(
            one,
            faults.get((one.connection_id, one.correlation_id)),
            ids[one.node] if one.node < len(ids) else one.node,
            sources.names.get,
            one.client_id or _NO_CLIENT_ID,
        )
        for one in sources.requests
    ]
    found += [
        change_of(each.monotonic_ns, each.text, Mark(each.kind), {each.node_id} - {-1}) for each in sources.changes
    ]
    return found


def change_of(monotonic_ns: int, text: str, mark: Mark = Mark.NODE, nodes: Iterable[int] = ()) -> Moment:
    """Return a moment of the server itself."""
    return Moment(monotonic_ns, monotonic_ns, "", frozenset(nodes), mark, text)


def latest(moments: Iterable[Moment]) -> list[Moment]:
    """Return the latest lines of these moments."""
    return fold(moments)[-MOMENTS_KEPT:]


class Timeline(Lanes):
    """The latest 1,000 lines, with lanes for 20 clients. All other clients share a lane."""

    @classmethod
    def of(cls, moments: Iterable[Moment], end_ns: int, *, title: str = "", failure: str = "") -> Timeline:
        """Return the timeline of these moments. A `failure` becomes the last moment."""
        folded = fold(each for each in moments if each.started_ns <= end_ns)
        kept = folded[-MOMENTS_KEPT:]
        clients = list(dict.fromkeys(each.client for each in kept if each.client))
        nodes = sorted({node for each in kept for node in each.nodes})
        if len(clients) > _CLIENT_LANES:
            shared = set(clients[_CLIENT_LANES - 1 :])
            clients = [*clients[: _CLIENT_LANES - 1], _OTHERS]
            for each in kept:
                if each.client in shared:
                    each.text, each.client = f"{each.client}: {each.text}", _OTHERS
        if failure:
            kept.append(change_of(end_ns, failure, Mark.FAILURE))
        return cls(title, kept, len(folded) - len(kept) + bool(failure), clients, nodes, end_ns)

    def __bool__(self) -> bool:
        """Return False if nothing happened before the failure."""
        return any(each.mark is not Mark.FAILURE for each in self.moments)

    def text(self, columns: int = 80, lines: int = 60) -> str:
        """Return the latest lines for a terminal, in ASCII except for names, without colours."""
        return render_text(self, columns, lines)

    def html(self) -> str:
        """Return an HTML page that needs no other file. It opens at the last moment."""
        return render_page(self)
