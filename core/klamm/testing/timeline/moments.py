"""`Moment`: a line of a timeline. Polls and repeated requests of a client are combined in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from klamm.wire.errors import ErrorCode
from klamm.wire.named_entities import entities_of


class Mark(StrEnum):
    """The kind of a moment. The kinds in `QUIET` are not notable."""

    FAILURE = "failure"
    FAULT = "fault"
    ERROR = "error"
    REBALANCE = "rebalance"
    LEADER = "leader"
    NODE = "node"
    TRANSACTION = "transaction"
    REQUEST = "request"
    POLLING = "polling"


QUIET: Final = (Mark.REQUEST, Mark.POLLING)
"""The kinds of moments that are not notable.

Polls are combined in one line until the next notable moment of their client.
"""

_POLLS: Final = frozenset(
    {
        "ApiVersions",
        "ConsumerGroupHeartbeat",
        "DescribeCluster",
        "Fetch",
        "FindCoordinator",
        "GetTelemetrySubscriptions",
        "Heartbeat",
        "ListOffsets",
        "Metadata",
        "OffsetFetch",
        "PushTelemetry",
        "ShareFetch",
        "ShareGroupHeartbeat",
        "StreamsGroupHeartbeat",
    }
)
_REBALANCES: Final = frozenset({"JoinGroup", "SyncGroup", "LeaveGroup"})
_TRANSACTIONS: Final = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"})
_STEPS_OF_A_REBALANCE: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED})
_MEMBER_EPOCHS: Final = {0: "joins", -1: "leaves", -2: "leaves for a while"}
_HAS_ANSWER: Final = ("answered", "no_answer")
_TRANSACTIONAL_ID: Final = ("transactional_id", "v3_and_below_transactional_id")
_SHOWN_TOPICS: Final = 3


@dataclass(slots=True)
class Moment:
    """One line: a request, repeated equal requests, or a change of the server.

    `client` is empty if no client has caused the change. `nodes` are the ids of the concerned nodes. `started_ns` is a
    time of the server's monotonic clock. `source` is the first request, and its `to_json` returns the content; None for
    a change.
    """

    started_ns: int
    ended_ns: int
    client: str
    nodes: frozenset[int]
    mark: Mark
    text: str
    source: Any = None
    count: int = 1
    polls: Counter[str] = field(default_factory=Counter)

    @property
    def shown(self) -> str:
        """Return the text, with the number of repetitions."""
        if self.mark is Mark.POLLING and self.count > 1:
            return f"{self.count} polls: " + ", ".join(f"{times} {api}" for api, times in self.polls.most_common())
        return self.text if self.count == 1 else f"{self.text}, {self.count} times"


@dataclass(slots=True)
class Lanes:
    """The lines of a timeline, oldest first, and its lanes; `dropped` is the number of earlier lines."""

    title: str
    moments: list[Moment]
    dropped: int
    clients: list[str]
    nodes: list[int]
    end_ns: int

    def seconds_before_end(self, moment: Moment) -> str:
        """Return the time from a moment to the end, e.g. `-1.204`."""
        return f"{min(0.0, (moment.started_ns - self.end_ns) / 1e9):.3f}"


def moment_of(
    request: Any, fault: str | None, node_id: int, name_of: Callable[[bytes], str | None], client: str
) -> Moment:
    """Return the moment of a recorded request; `fault` is the effect of a rule on it, `name_of` names topic ids."""
    mark, text = _mark(request, fault), _text(request, name_of)
    more = [f"fault {fault}"] if fault else []
    if request.outcome not in _HAS_ANSWER:
        more.append(request.outcome.replace("_", " "))
    if request.error_code and _error_name(request.error_code) not in (fault or "").split():
        more.append(_error_name(request.error_code))
    ended_ns = request.started_ns + int(request.duration_ms * 1e6)
    return Moment(
        request.started_ns,
        ended_ns,
        client,
        frozenset({node_id}),
        mark,
        ": ".join([text, ", ".join(more)]) if more else text,
        request,
        polls=Counter({request.api: 1} if mark is Mark.POLLING else {}),
    )


def fold(moments: Iterable[Moment]) -> list[Moment]:
    """Return moments in the order of their beginnings; equal moments of a client become one.

    Moments are not combined across another notable moment of the client, or across a moment that has no client.
    """
    found: list[Moment] = []
    open_runs: dict[str, dict[tuple[Any, ...], Moment]] = {}
    for moment in sorted(moments, key=lambda each: each.started_ns):
        if not moment.client:
            open_runs.clear()
            found.append(moment)
            continue
        runs = open_runs.setdefault(moment.client, {})
        is_polling = moment.mark is Mark.POLLING
        key = (moment.mark,) if is_polling else (moment.mark, moment.text, moment.nodes)
        run = runs.get(key)
        if run is not None:
            run.count += moment.count
            run.polls += moment.polls
            run.nodes |= moment.nodes
            run.ended_ns = max(run.ended_ns, moment.ended_ns)
            continue
        if moment.mark not in QUIET:
            runs.clear()
        runs[key] = run = replace(moment, polls=moment.polls.copy())
        found.append(run)
    return found


def _mark(request: Any, fault: str | None) -> Mark:
    if fault:
        return Mark.FAULT
    if request.error_code in _STEPS_OF_A_REBALANCE:
        return Mark.REBALANCE
    if request.error_code or request.outcome not in _HAS_ANSWER:
        return Mark.ERROR
    if request.api in _REBALANCES or _membership(request):
        return Mark.REBALANCE
    if request.api in _TRANSACTIONS or (request.api == "InitProducerId" and _transactional_id(request)):
        return Mark.TRANSACTION
    if request.api == "ElectLeaders":
        return Mark.LEADER
    return Mark.POLLING if request.api in _POLLS else Mark.REQUEST


def _membership(request: Any) -> str:
    """Return the change in a heartbeat of the newer protocols, e.g. `joins`; empty if there is no change."""
    if not request.api.endswith("GroupHeartbeat"):
        return ""
    left_or_joined = _MEMBER_EPOCHS.get(getattr(request.request, "member_epoch", 1), "")
    if left_or_joined:
        return left_or_joined
    assigned = (getattr(request.response, name, None) for name in ("assignment", "active_tasks"))
    return "gets an assignment" if any(each is not None for each in assigned) else ""


def _transactional_id(request: Any) -> str:
    names = (getattr(request.request, name, None) for name in _TRANSACTIONAL_ID)
    return next(filter(None, names), "")


def _text(request: Any, name_of: Callable[[bytes], str | None]) -> str:
    words = [request.api]
    if request.request is not None:
        entities = entities_of(request.request, name_of)
        words += filter(None, sorted(entities.groups))
        words += filter(None, [_transactional_id(request)])
        words += _topics(entities.topics)
    if request.api == "EndTxn":
        words.append("commits" if getattr(request.request, "committed", False) else "aborts")
    words += filter(None, [_membership(request)])
    return " ".join(words)


def _topics(topics: Mapping[str, set[int]]) -> list[str]:
    shown = [
        f"{topic}-{','.join(map(str, sorted(topics[topic])))}" if topics[topic] else topic
        for topic in sorted(filter(None, topics))[:_SHOWN_TOPICS]
    ]
    return [*shown, f"and {len(topics) - _SHOWN_TOPICS} topics more"] if len(topics) > _SHOWN_TOPICS else shown


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
