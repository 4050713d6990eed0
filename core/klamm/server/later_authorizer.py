"""`LaterAuthorizer`: a base class of authorizers whose decisions take time, e.g. because a policy engine decides."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from klamm.api.acl import AclOperation, ResourceType
from klamm.api.authorizer import Authorizer
from klamm.api.context import ListenerContext, RequestContext
from klamm.api.filters import Release
from klamm.config.setting import setting
from klamm.logs.escaping import clipped
from klamm.logs.rate_limited import RateLimitedLog
from klamm.metrics.metrics_registry import Counter
from klamm.runtime.workers import Workers
from klamm.server.decision_slots import DecisionSlots
from klamm.shared.addresses import source_of
from klamm.shared.principal import KafkaPrincipal

log = logging.getLogger("klamm.authorizer")

_NOTHING: frozenset[AclOperation] = frozenset()
_FAILED_NS = 1_000_000_000
_MAX_NAME = 1_024
_FAILURE = "a decision failed, and is a denial unless an earlier one holds: %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterSettings:
    """The settings of a `LaterAuthorizer`; a class of settings may derive from it."""

    timeout_ms: int = setting(
        2_000, doc="Time that a request waits for decisions. Then what is undecided is denied.", minimum=1
    )
    cache_ms: int = setting(
        30_000, doc="Time that a decision holds. One in use is renewed after half of it.", minimum=1
    )
    cache_entries: int = setting(
        100_000, doc="Maximum of cached decisions. Beyond it the oldest is dropped.", minimum=1
    )
    max_in_flight: int = setting(
        10_000,
        doc="Maximum of decisions being made, half of it for the clients of one address. Further ones wait in turn.",
        minimum=1,
    )
    max_waiting: int = setting(
        200_000,
        doc="Maximum of decisions that wait in turn, half of it for the clients of one address. More are denied.",
        minimum=1,
    )
    threads: int = setting(8, doc="Threads that make decisions.", minimum=1)


class _Key(NamedTuple):
    """The arguments of `permitted`, by which decisions are cached."""

    principal: KafkaPrincipal
    host: str
    resource_type: ResourceType
    resource_name: str


class _Known(NamedTuple):
    allowed: frozenset[AclOperation]
    renew_ns: int
    until_ns: int


_Decided: TypeAlias = dict[tuple[ResourceType, str], _Known]


class _Wait:
    """A request that waits for `left` decisions. The authorizer's lock protects `left`.

    `left` starts at 1, so that it cannot reach 0 before `prepare` has asked for all decisions.
    """

    def __init__(self, source: str, decided: _Decided) -> None:
        self.source = source
        self.decided = decided
        self.left = 1
        self.is_queued = False
        self.release = Release()

    def take(self, key: _Key, known: _Known) -> bool:
        """Note a decision; return True if the request waits for no other."""
        self.decided[key.resource_type, key.resource_name] = known
        self.left -= 1
        return not self.left


class LaterAuthorizer(Authorizer):
    """An authorizer that decides with `permitted`, which may wait for a peer, on threads of its own.

    `settings` are `LaterSettings`, or those of a class that derives from it.

    A request waits, without a thread, for the decisions about the resources that it names. Later requests of its
    connection wait too. Decisions are cached, and a request keeps those about the resources that it names. An operation
    is denied if its decision fails, comes too late or exceeds a limit. A resource that the request does not name, e.g.
    an element of a list, is denied until a decision about it is in the cache; `authorize` starts that decision.
    """

    settings: LaterSettings

    @abstractmethod
    def permitted(
        self, principal: KafkaPrincipal, host: str, resource_type: ResourceType, resource_name: str
    ) -> Collection[AclOperation]:
        """Return the operations that the principal may perform on the resource from this host.

        Called on a thread of this authorizer. May block and raise.
        """

    def open(self, listener: ListenerContext) -> None:
        """Register the metrics. Threads start with the first decision. An override must call this method."""
        settings, services = self.settings, listener.services
        self.prepare_max_ms = settings.timeout_ms
        # Two underscores, because a subclass may use any name with one.
        self.__clock = services.clock
        self.__failures = RateLimitedLog(log, services.scheduler.schedule)
        self.__workers = Workers(f"klamm-authorizer-{listener.name}", settings.threads, services.threads)
        # Protects `__known` when it changes, the other tables, `__is_closed`, and the counts in `_Wait`. Reading a
        # decision needs no lock.
        self.__lock = threading.Lock()
        self.__known: dict[_Key, _Known] = {}
        self.__asked: dict[_Key, list[_Wait]] = {}
        self.__slots = DecisionSlots[_Wait, _Key](settings.max_in_flight, settings.max_waiting)
        # The decisions about what a request names: `forget` and the limit of the cache do not take them from it.
        self.__decided_for: WeakKeyDictionary[RequestContext, _Decided] = WeakKeyDictionary()
        self.__schedule = services.scheduler.schedule
        # Counts calls of `forget`: a decision of an earlier round does not count.
        self.__round = 0
        self.__is_closed = False
        name = "klamm:type=LaterAuthorizer,name="
        self.__results: dict[str, Counter] = {
            result: services.metrics.counter(
                f"{name}AnswersTotal",
                "Answers of the decision function, by result.",
                listener=listener.name,
                result=result,
            )
            for result in ("decided", "failed", "refused")
        }
        self.__removals = [
            services.metrics.gauge(f"{name}{what}", doc, read, listener=listener.name)
            for what, doc, read in (
                ("InFlight", "Decisions that are being made.", partial(len, self.__asked)),
                ("WaitingDecisions", "Decisions that wait because too many are being made.", self.__waiting),
                ("CachedDecisions", "Decisions in the cache.", partial(len, self.__known)),
            )
        ]

    def authorize(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Decide from the cache, or as was decided while the request waited.

        If the decision is missing, deny the operation and start the decision.
        """
        key = _key(context, resource_type, resource_name)
        known, now_ns = self.__known.get(key), self.__clock.monotonic_ns()
        if known is None or now_ns >= known.renew_ns:
            self.__ask(key, None)
        if known is None:
            known = self.__decided_for.get(context, {}).get((resource_type, resource_name))
        return known is not None and now_ns < known.until_ns and operation in known.allowed

    def authorize_by_resource_type(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return True if a cached decision about a resource of the type allows the operation."""
        wanted, now_ns = _key(context, resource_type, "")[:3], self.__clock.monotonic_ns()
        with self.__lock:
            return any(
                operation in known.allowed and now_ns < known.until_ns
                for key, known in self.__known.items()
                if key[:3] == wanted
            )

    def prepare(self, context: RequestContext, resources: Collection[tuple[ResourceType, str]]) -> Release | None:
        """Start the decisions that are missing in the cache; return None if none is missing."""
        now_ns = self.__clock.monotonic_ns()
        decided: _Decided = {}
        missing, renewable = [], []
        # The request has to wait if one is missing, so decisions that would expire meanwhile are then renewed too.
        end_ns = now_ns + self.settings.timeout_ms * 1_000_000
        for resource in resources:
            key = _key(context, *resource)
            known = self.__known.get(key)
            if known is None or now_ns >= known.until_ns:
                missing.append(key)
                continue
            decided[resource] = known
            if known.allowed and end_ns >= known.until_ns:
                renewable.append(key)
        self.__decided_for[context] = decided
        if not missing:
            return None
        wait = _Wait(source_of(context.client_address.host), decided)
        for key in (*missing, *renewable):
            self.__ask(key, wait)
        if wait.is_queued:
            self.__schedule(self.settings.timeout_ms, partial(self.__give_up, wait))
        with self.__lock:
            wait.left -= 1
            return wait.release if wait.left else None

    def forget(self) -> None:
        """Drop all decisions, e.g. because the rules have changed. Those being made are made again. Any thread."""
        with self.__lock:
            self.__round += 1
            self.__known.clear()

    def close(self) -> None:
        """Release all waiting requests and end the threads, without waiting for running calls of `permitted`."""
        for remove in self.__removals:
            remove()
        with self.__lock:
            asked, self.__asked, self.__is_closed = self.__asked, {}, True
            waits = [*(wait for waits in asked.values() for wait in waits), *self.__slots.drop_all()]
        for wait in waits:
            wait.release.release()
        self.__workers.close(0)

    def __waiting(self) -> int:
        return self.__slots.waiting

    def __ask(self, key: _Key, wait: _Wait | None) -> None:
        if len(key.resource_name) > _MAX_NAME or len(key.principal.name) > _MAX_NAME:
            # Denied and not cached: clients choose these names, and the cache has a limit by number.
            self.__results["refused"].add()
            return
        with self.__lock:
            waits = self.__asked.get(key)
            is_new = waits is None
            if waits is None:
                source = source_of(key.host)
                if self.__is_closed or not self.__slots.take(source):
                    if wait is None or self.__is_closed or not self.__slots.wait(source, wait, key):
                        self.__results["refused"].add()
                    else:
                        wait.is_queued = True
                        wait.left += 1
                    return
                waits = self.__asked[key] = []
            if wait is not None:
                wait.left += 1
                waits.append(wait)
        if is_new:
            self.__submit(key)

    def __submit(self, key: _Key) -> None:
        self.__workers.submit(partial(self.__decide, key), source_of(key.host))

    def __give_up(self, wait: _Wait) -> None:
        """Begin no further decisions for a request whose time is over."""
        with self.__lock:
            dropped = self.__slots.drop(wait.source, wait)
        if dropped:
            self.__results["refused"].add(dropped)
            wait.release.release()

    def __decide(self, key: _Key) -> None:
        done = None
        while done is None:
            asked_round = self.__round
            decided = self.__permitted(key)
            done = self.__settle(key, decided, asked_round)
        waits, started = done
        for wait in waits:
            wait.release.release()
        for one in started:
            self.__submit(one)

    def __permitted(self, key: _Key) -> frozenset[AclOperation] | None:
        """Return the decision; None if it failed."""
        try:
            allowed = frozenset(AclOperation(one) for one in self.permitted(*key))
        except BaseException as error:
            # Also what is no Exception, e.g. a panic of a library in Rust: the thread goes on.
            what = clipped(f"{type(error).__name__}: {error}")
            self.__failures.log(type(error).__name__, logging.WARNING, _FAILURE, what)
            self.__results["failed"].add()
            return None
        self.__results["decided"].add()
        return allowed

    def __settle(
        self, key: _Key, allowed: frozenset[AclOperation] | None, asked_round: int
    ) -> tuple[list[_Wait], list[_Key]] | None:
        """Keep a decision; return the requests that wait for no other, and the decisions that begin now.

        None if the rules have changed meanwhile.
        """
        now_ns, cache_ns = self.__clock.monotonic_ns(), self.settings.cache_ms * 1_000_000
        with self.__lock:
            if asked_round != self.__round and not self.__is_closed:
                return None
            known = self.__known.get(key)
            if allowed is not None:
                known = self.__keep(key, allowed, now_ns, cache_ns)
            elif known is not None and now_ns < known.until_ns:
                known = self.__known[key] = known._replace(renew_ns=now_ns + _FAILED_NS)
            else:
                known = self.__keep(key, _NOTHING, now_ns, min(cache_ns, _FAILED_NS))
            done = [wait for wait in self.__asked.pop(key, ()) if wait.take(key, known)]
            self.__slots.free(source_of(key.host))
            return done, self.__begin(done, now_ns)

    def __begin(self, done: list[_Wait], now_ns: int) -> list[_Key]:
        """Return the decisions for which there is room now; add the requests that wait for nothing to `done`."""
        started = []
        while (found := self.__slots.next()) is not None:
            wait, key = found
            waits, known = self.__asked.get(key), self.__known.get(key)
            if waits is None and (known is None or now_ns >= known.until_ns):
                self.__asked[key] = [wait]
                started.append(key)
                continue
            # Another request has asked the same meanwhile.
            self.__slots.free(wait.source)
            if waits is not None:
                waits.append(wait)
            elif known is not None and wait.take(key, known):
                done.append(wait)
        return started

    def __keep(self, key: _Key, allowed: frozenset[AclOperation], now_ns: int, for_ns: int) -> _Known:
        # Removed first, so that the newest decision is the last in the order of the dict.
        self.__known.pop(key, None)
        while self.__known:
            oldest = next(iter(self.__known))
            if now_ns < self.__known[oldest].until_ns and len(self.__known) < self.settings.cache_entries:
                break
            del self.__known[oldest]
        known = self.__known[key] = _Known(allowed, now_ns + for_ns // 2, now_ns + for_ns)
        return known


def _key(context: RequestContext, resource_type: ResourceType, resource_name: str) -> _Key:
    return _Key(context.principal, context.client_address.host, resource_type, resource_name)
