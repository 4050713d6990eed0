"""`RuleSettings`: which requests a rule is for, and what happens to them. `Fault`: an active rule with its counters."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from klamm import ErrorCode, RequestContext, setting
from klamm.wire.api_keys import ApiKey, find_spec
from klamm_faults.entities import Entities
from klamm_faults.kinds import APIS_OF_KIND, NEED_DELAY, NEED_ERROR, FaultKind
from klamm_faults.reordering import Reordering

_API_KEYS = {spec.name: int(key) for key in ApiKey if (spec := find_spec(key)) is not None}
_KINDS = tuple(kind.value for kind in FaultKind)


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """A rule. A condition that is unset, e.g. `topic`, matches every request; patterns are those of `fnmatch`."""

    kind: str = setting(doc="What happens.", choices=_KINDS)
    api: tuple[str, ...] = setting((), doc="Names of APIs, e.g. Produce; empty stands for all but ApiVersions.")
    topic: str | None = setting(None, doc="Pattern of a topic that the request names.")
    partition: int | None = setting(None, doc="A partition that the request names.", minimum=0)
    group: str | None = setting(None, doc="Pattern of a group that the request names.")
    client: str | None = setting(None, doc="Pattern of the client id.")
    listener: str | None = setting(None, doc="Pattern of the listener's name.")
    node: int | None = setting(None, doc="Id of the node that gets the request, as Metadata has it.", minimum=0)
    error: str | None = setting(
        None, doc="Kafka's name of an error code, of the kinds error, error_after and partition_error."
    )
    delay_ms: int = setting(
        0, doc="Milliseconds, of the kinds delay, slow and throttle; of reorder the longest wait.", minimum=0
    )
    after: int = setting(0, doc="Requests that pass before the first fault.", minimum=0)
    count: int | None = setting(None, doc="The most faults; unset is any number.", minimum=1)
    probability: float = setting(1.0, doc="The share of the requests.", minimum=0.0, maximum=1.0)

    def complaints(self) -> Iterator[str]:
        """Problems that concern several settings together."""
        kind = FaultKind(self.kind)
        if kind in NEED_ERROR and self.error is None:
            yield f'the kind "{self.kind}" needs an error'
        if self.error is not None and self.error not in ErrorCode.__members__:
            yield f'there is no error "{self.error}"'
        if kind in NEED_DELAY and not self.delay_ms:
            yield f'the kind "{self.kind}" needs delay_ms'
        for name in self.api:
            if name not in _API_KEYS:
                yield f'there is no API "{name}"'
            elif kind is FaultKind.PARTITION_ERROR and _API_KEYS[name] not in APIS_OF_KIND[kind]:
                yield f'answers of "{name}" have no errors of partitions'
        if kind is FaultKind.PARTITION_ERROR and self.topic is None and self.partition is None:
            yield f'the kind "{self.kind}" needs a topic or a partition'


class Fault:
    """An active rule. Any thread may call it. `fired` counts the requests that got the fault."""

    def __init__(self, name: str, rule: RuleSettings, seed: int, remove: Callable[[Fault], None]) -> None:
        self.name = name
        self.rule = rule
        self.kind = FaultKind(rule.kind)
        self._apis = frozenset(_API_KEYS[one] for one in rule.api) or APIS_OF_KIND.get(self.kind)
        self._random = random.Random(f"{seed} {name}")
        self._remove = remove
        self._changed = threading.Condition()
        # Protected by the condition.
        self.reordering = Reordering()
        self._seen = 0
        self._taken = 0
        self.fired = 0

    @property
    def error(self) -> ErrorCode:
        """The error code, for the kinds that answer with one."""
        return ErrorCode[self.rule.error or "NOT_COORDINATOR"]

    def take(self, context: RequestContext, entities: Entities, node: int | None) -> bool:
        """Whether this request gets the fault; it counts towards `after` and `count`. `node` is None if unknown."""
        if not self.concerns(context, entities, node):
            return False
        rule = self.rule
        with self._changed:
            self._seen += 1
            if self._seen <= rule.after or (rule.count is not None and self._taken >= rule.count):
                return False
            if rule.probability < 1 and self._random.random() >= rule.probability:
                return False
            self._taken += 1
        return True

    def concerns(self, context: RequestContext, entities: Entities, node: int | None) -> bool:
        """Whether the rule is for this request."""
        rule = self.rule
        if rule.node is not None and rule.node != node:
            return False
        if self._apis is None:
            if context.api_key == ApiKey.API_VERSIONS:
                return False
        elif context.api_key not in self._apis:
            return False
        return (
            (rule.client is None or fnmatchcase(context.client_id or "", rule.client))
            and (rule.listener is None or fnmatchcase(context.listener.name, rule.listener))
            and (rule.group is None or any(fnmatchcase(group, rule.group) for group in entities.groups))
            and ((rule.topic is None and rule.partition is None) or self._names_partition(entities))
        )

    def _names_partition(self, entities: Entities) -> bool:
        rule = self.rule
        # Metadata names topics alone; its answer has the partitions.
        by_answer = self.kind is FaultKind.PARTITION_ERROR
        return any(
            (rule.topic is None or fnmatchcase(topic, rule.topic))
            and (rule.partition is None or rule.partition in partitions or (by_answer and not partitions))
            for topic, partitions in entities.topics.items()
        )

    def names(self, topic: str, partition: int) -> bool:
        """Whether the rule is for this partition."""
        rule = self.rule
        of_topic = rule.topic is None or fnmatchcase(topic, rule.topic)
        return of_topic and rule.partition in (None, partition)

    def note(self) -> None:
        """Count one request that got the fault."""
        with self._changed:
            self.fired += 1
            self._changed.notify_all()

    def wait(self, count: int = 1, *, timeout_s: float = 10.0) -> int:
        """Wait until it has fired `count` times; how often it has. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.fired >= count, timeout_s):
                raise TimeoutError(f"{self}: fired {self.fired} times in {timeout_s:g} s, not {count}")
            return self.fired

    def remove(self) -> None:
        """Remove the rule."""
        self._remove(self)

    def __repr__(self) -> str:
        return f"<fault {self.name}: {self.kind.value}, fired {self.fired} times>"
