"""`RuleSettings`: the conditions of a rule, and its effect. `Fault`: an active rule with its counters."""

from __future__ import annotations

import random
import threading
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from klamm import ErrorCode, RequestContext, setting
from klamm.config import did_you_mean
from klamm.filters import Release
from klamm.wire.api_keys import ApiKey, find_spec, load, spec_of
from klamm.wire.named_entities import GROUP_FIELDS, PARTITION_FIELDS, TOPIC_FIELDS, Entities
from klamm.wire.struct_base import WireStruct
from klamm_faults.kinds import APIS_OF_KIND, MAY_HAVE_ERROR, NEED_DELAY, NEED_ERROR, ONLY_FOR_THEIR_APIS, FaultKind


class Reordering:
    """The request that a rule of the kind `reorder` holds back, if there is one. Any thread may call it."""

    def __init__(self) -> None:
        # Protects the waiting request.
        self._lock = threading.Lock()
        self._waiting: tuple[str, Release] | None = None

    def wait(self, context: RequestContext) -> Release:
        """Hold back a request. An earlier waiting request continues."""
        release = Release()
        with self._lock:
            earlier, self._waiting = self._waiting, (context.connection.connection_id, release)
        if earlier is not None:
            earlier[1].release()
        return release

    def overtaken_by(self, context: RequestContext) -> Release | None:
        """Return a function that releases the waiting request, or None if this request overtakes none.

        The caller calls the function when this request is answered.
        """
        if self._waiting is None:
            return None
        with self._lock:
            if self._waiting is None or self._waiting[0] == context.connection.connection_id:
                return None
            (_, release), self._waiting = self._waiting, None
            return release


class Reach(typing.NamedTuple):
    """The fields of an API that rules use: topics, partitions and groups in requests, throttle time in responses."""

    topics: bool
    partitions: bool
    groups: bool
    throttle: bool


@cache
def reach_of(api_key: int) -> Reach:
    """Return the fields of an API, which at least one of its versions has."""
    name, module = spec_of(api_key).name, vars(load(api_key))
    paths = set(_fields(module[f"{name}Request"]))
    names = {field for _, field in paths}
    topics = not names.isdisjoint({*TOPIC_FIELDS, "topic_id"}) or any("Topic" in struct for struct, _ in paths)
    return Reach(
        topics,
        topics and not names.isdisjoint(PARTITION_FIELDS),
        not names.isdisjoint(GROUP_FIELDS) or api_key == ApiKey.FIND_COORDINATOR,
        "throttle_time_ms" in module[f"{name}Response"].__slots__,
    )


def _fields(struct: type[WireStruct]) -> Iterator[tuple[str, str]]:
    """Yield pairs for all fields of a message and of the structs in it: the struct's name and the field's name."""
    hints = typing.get_type_hints(struct.__init__)
    for name in struct.__slots__:
        yield struct.__name__, name
        for below in _structs(hints.get(name)):
            yield from _fields(below)


def _structs(hint: Any) -> Iterator[type[WireStruct]]:
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        yield hint
    for one in typing.get_args(hint):
        yield from _structs(one)


_API_KEYS = {spec.name: int(key) for key in ApiKey if (spec := find_spec(key)) is not None}
_KINDS = tuple(kind.value for kind in FaultKind)
_SHOWN_CONDITIONS = ("api", "topic", "partition", "group", "client", "error")
_SHOWN_REASONS = 5
_MAX_REASONS = 100
_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """A rule. An unset condition, e.g. `topic`, matches every request. Patterns are those of `fnmatch`."""

    kind: str = setting(doc="Effect of the fault.", choices=_KINDS)
    api: tuple[str, ...] = setting((), doc="Names of APIs, e.g. Produce; empty means all but ApiVersions.")
    topic: str | None = setting(None, doc="Pattern of a topic that the request names.")
    partition: int | None = setting(None, doc="A partition that the request names.", minimum=0)
    group: str | None = setting(None, doc="Pattern of a group that the request names.")
    client: str | None = setting(None, doc="Pattern of the client id.")
    listener: str | None = setting(None, doc="Pattern of the listener's name.")
    node: int | None = setting(None, doc="Id of the node that gets the request, as in Metadata.", minimum=0)
    error: str | None = setting(
        None, doc="Kafka's name of an error code, for the kinds error, error_after and partition_error."
    )
    delay_ms: int = setting(
        0, doc="Milliseconds, for the kinds delay, slow and throttle; for reorder, the longest wait.", minimum=0
    )
    after: int = setting(0, doc="Requests that pass before the first fault.", minimum=0)
    count: int | None = setting(None, doc="Maximum number of faults; unset, any number.", minimum=1)
    probability: float = setting(
        1.0, doc="Share of the matching requests that get the fault, from 0 to 1.", minimum=0.0, maximum=1.0
    )

    def complaints(self) -> Iterator[str]:
        """Yield problems that concern several settings together."""
        kind = FaultKind(self.kind)
        if kind in NEED_ERROR and self.error is None:
            yield f'the kind "{self.kind}" needs an error'
        if self.error is not None and self.error not in ErrorCode.__members__:
            yield f'there is no error "{self.error}"{did_you_mean(self.error, ErrorCode.__members__)}'
        if self.error == "NONE":
            yield "NONE is not an error"
        if self.error is not None and kind not in MAY_HAVE_ERROR:
            yield f'the kind "{self.kind}" takes no error'
        if self.delay_ms and kind not in NEED_DELAY:
            yield f'the kind "{self.kind}" takes no delay_ms'
        if kind in NEED_DELAY and not self.delay_ms:
            yield f'the kind "{self.kind}" needs delay_ms'
        unknown = [name for name in self.api if name not in _API_KEYS]
        for name in unknown:
            yield f'there is no API "{name}"{did_you_mean(name, _API_KEYS)}'
        if not unknown:
            yield from self._out_of_reach(kind)
        if kind is FaultKind.PARTITION_ERROR and self.topic is None and self.partition is None:
            yield f'the kind "{self.kind}" needs a topic or a partition'

    def _out_of_reach(self, kind: FaultKind) -> Iterator[str]:
        """Yield reasons why the rule can have no effect on an API that it names."""
        only = APIS_OF_KIND.get(kind)
        for name in self.api:
            if kind in ONLY_FOR_THEIR_APIS and only is not None and _API_KEYS[name] not in only:
                yield f'the kind "{self.kind}" has no effect on "{name}"'
            else:
                yield from self._unmeetable(kind, f'"{name}"', [reach_of(_API_KEYS[name])])
        if not self.api and only is not None:
            yield from self._unmeetable(kind, f'the kind "{self.kind}"', [reach_of(key) for key in only])

    def _unmeetable(self, kind: FaultKind, apis: str, reach: list[Reach]) -> Iterator[str]:
        if kind is FaultKind.THROTTLE and not any(one.throttle for one in reach):
            yield f"responses of {apis} have no throttle time"
        if self.topic is not None and not any(one.topics for one in reach):
            yield f"requests of {apis} name no topics"
        # Metadata requests only name topics; the response has the partitions.
        by_answer = kind is FaultKind.PARTITION_ERROR
        if self.partition is not None and not by_answer and not any(one.partitions for one in reach):
            yield f"requests of {apis} name no partitions"
        if self.group is not None and not any(one.groups for one in reach):
            yield f"requests of {apis} name no groups"


class Fault:
    """An active rule. `fired` counts the requests that got the fault. Any thread may call it."""

    def __init__(self, name: str, rule: RuleSettings, seed: int, remove: Callable[[Fault], None]) -> None:
        self.name = name
        self.rule = rule
        self.kind = FaultKind(rule.kind)
        self._apis = frozenset(_API_KEYS[one] for one in rule.api) or APIS_OF_KIND.get(self.kind)
        self._random = random.Random(f"{seed} {name}")
        self._remove = remove
        self._changed = threading.Condition()
        # The condition protects these fields.
        self.reordering = Reordering()
        self._seen = 0
        self._taken = 0
        self._passed: Counter[str] = Counter()
        self.fired = 0

    @property
    def error(self) -> ErrorCode:
        """The error code, for the kinds that answer with an error."""
        return ErrorCode[self.rule.error or "NOT_COORDINATOR"]

    @property
    def summary(self) -> str:
        """The kind with its error code or delay, e.g. `error NOT_LEADER_OR_FOLLOWER`."""
        delay = f"{self.rule.delay_ms} ms" if self.rule.delay_ms else ""
        return " ".join(filter(None, (self.kind.value, self.rule.error, delay)))

    def take(self, context: RequestContext, entities: Entities, node: int | None) -> bool:
        """Return True if this request gets the fault, and count the request for `after` and `count`.

        `node` is the id of the node that got the request, or None if it is unknown.
        """
        unmet = self.unmet(context, entities, node)
        with self._changed:
            unmet = unmet or self._passes()
            if unmet:
                known = unmet in self._passed or len(self._passed) < _MAX_REASONS
                self._passed[unmet if known else "differed in other ways"] += 1
                return False
            self._taken += 1
        return True

    def _passes(self) -> str:
        """Return the reason why a matching request gets no fault, e.g. `count`; an empty text if it gets the fault."""
        rule = self.rule
        self._seen += 1
        if self._seen <= rule.after:
            return f"came first (after = {rule.after})"
        if rule.count is not None and self._taken >= rule.count:
            return f"came later (count = {rule.count})"
        if rule.probability < 1 and self._random.random() >= rule.probability:
            return f"escaped (probability = {rule.probability:g})"
        return ""

    def concerns(self, context: RequestContext, entities: Entities, node: int | None) -> bool:
        """Return True if the rule applies to this request."""
        return not self.unmet(context, entities, node)

    def unmet(self, context: RequestContext, entities: Entities, node: int | None) -> str:
        """Return, in words, the first condition that a request does not meet, or an empty text."""
        rule = self.rule
        if self._apis is None:
            if context.api_key == ApiKey.API_VERSIONS:
                return "were ApiVersions"
        elif context.api_key not in self._apis:
            return f"were {context.api_name}"
        if rule.node is not None and rule.node != node:
            return "came to a node that no Metadata has named yet" if node is None else f"came to node {node}"
        if rule.client is not None and not fnmatchcase(context.client_id or "", rule.client):
            return f"had the client id {context.client_id!r}"
        if rule.listener is not None and not fnmatchcase(context.listener.name, rule.listener):
            return f"came to the listener {context.listener.name!r}"
        if rule.group is not None and not any(fnmatchcase(group, rule.group) for group in entities.groups):
            return f"were {context.api_name} of {_named('group', entities.groups)}"
        if (rule.topic is not None or rule.partition is not None) and not self._names_partition(entities):
            return f"were {context.api_name} of {_named('topic', entities.topics)}" + (
                "" if rule.partition is None else f", not partition {rule.partition}"
            )
        return ""

    def _names_partition(self, entities: Entities) -> bool:
        rule = self.rule
        # Metadata requests only name topics; the response has the partitions.
        by_answer = self.kind is FaultKind.PARTITION_ERROR
        return any(
            (rule.topic is None or fnmatchcase(topic, rule.topic))
            and (rule.partition is None or rule.partition in partitions or (by_answer and not partitions))
            for topic, partitions in entities.topics.items()
        )

    def names(self, topic: str, partition: int) -> bool:
        """Return True if the rule applies to this partition."""
        rule = self.rule
        of_topic = rule.topic is None or fnmatchcase(topic, rule.topic)
        return of_topic and rule.partition in (None, partition)

    def note(self) -> None:
        """Count one request that got the fault."""
        with self._changed:
            self.fired += 1
            self._changed.notify_all()

    def wait(self, count: int = 1, *, timeout_s: float = 10.0) -> int:
        """Wait until the rule has fired `count` times. Return the number of times. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.fired >= count, timeout_s):
                raise TimeoutError(
                    f"{self}: fired {self.fired} times in {timeout_s:g} s, not {count}; {self._without_fault()}"
                )
            return self.fired

    def _without_fault(self) -> str:
        """Return a description of the requests that got no fault."""
        most = self._passed.most_common(_SHOWN_REASONS)
        if not most:
            return "no request has come, or rules before it decided"
        return "of the requests without this fault " + ", ".join(f"{times} {unmet}" for unmet, times in most)

    def remove(self) -> None:
        """Remove the rule."""
        self._remove(self)

    def __repr__(self) -> str:
        conditions = (f"{key}={getattr(self.rule, key)!r}" for key in _SHOWN_CONDITIONS if getattr(self.rule, key))
        return f"<fault {self.name}: {', '.join((self.kind.value, *conditions))}, fired {self.fired} times>"


def _named(what: str, names: Iterable[str]) -> str:
    shown = sorted(names)
    if not shown:
        return f"no {what}"
    more = f" and {len(shown) - _SHOWN_NAMES} more" if len(shown) > _SHOWN_NAMES else ""
    return f"{what} {', '.join(map(repr, shown[:_SHOWN_NAMES]))}{more}"
