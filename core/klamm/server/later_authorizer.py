"""`LaterAuthorizer`: a base class of authorizers whose decisions take time, e.g. because a policy engine decides."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Iterable
from contextlib import suppress
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
from klamm.runtime.platform.processes import give_way
from klamm.runtime.workers import Workers
from klamm.server.decision_slots import DecisionSlots
from klamm.shared.addresses import source_of
from klamm.shared.principal import KafkaPrincipal

log = logging.getLogger("klamm.authorizer")

_NOTHING: frozenset[AclOperation] = frozenset()
_FAILED_NS = 1_000_000_000
_MAX_NAME = 1_024
_AT_ONCE = 100
"""The most table entries that a thread handles before it releases the lock, because requests wait for the lock."""
_FAILURE = "a decision failed, and is a denial unless an earlier one holds: %s"
_NOT_RELEASED = "a request that has waited for decisions cannot go on: %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterSettings:
    """The settings of a `LaterAuthorizer`; a class of settings may derive from it."""

    timeout_ms: int = setting(
        2_000, doc="Time that a request waits for decisions. Undecided operations are then denied.", minimum=1
    )
    cache_ms: int = setting(
        30_000, doc="Time that a decision holds. A decision in use is renewed after half of it.", minimum=1
    )
    cache_entries: int = setting(
        100_000, doc="Maximum of cached decisions. Beyond it the oldest is dropped.", minimum=1
    )
    max_in_flight: int = setting(
        10_000,
        doc="Maximum of decisions being made, half of it for the clients of one address. Others wait in turn.",
        minimum=1,
    )
    max_waiting: int = setting(
        200_000,
        doc="Maximum of decisions that wait in turn, half of it for the clients of one address. Others are denied.",
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


class _Prepared(NamedTuple):
    """The decisions about the resources that a request names. They hold for the request at least until `end_ns`."""

    decided: _Decided
    end_ns: int


class _Wait:
    """A request that waits for `left` decisions. The authorizer's lock protects `left`.

    `left` starts at 1, so that it cannot reach 0 before `prepare` has asked for all decisions.
    """

    def __init__(self, source: str, decided: _Decided, asked_round: int) -> None:
        self.source = source
        self.decided = decided
        self.asked_round = asked_round
        self.left = 1
        self.is_queued = False
        self.release = Release()

    def take(self, key: _Key, known: _Known) -> bool:
        """Note a decision; return True if the request waits for no other."""
        self.decided[key.resource_type, key.resource_name] = known
        self.left -= 1
        return not self.left


# The requests that wait for no other decision, the decisions that begin now, and True if more may begin.
_Done: TypeAlias = tuple[list[_Wait], list[_Key], bool]


class LaterAuthorizer(Authorizer):
    """An authorizer whose `permitted` decides on the authorizer's own threads, and may wait for another server.

    `settings` are `LaterSettings`, or the settings of a class that derives from it.

    - A request waits, without a thread, for the decisions about the resources that it names. Later requests of its
      connection wait too.
    - Decisions are cached. A request keeps the decisions about the resources that it names.
    - An operation is denied if its decision fails, comes too late or exceeds a limit.
    - Some resources are not named by the request, e.g. the elements of a list. Such a resource is denied until the
      cache has a decision about it. `authorize` starts that decision.
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
        self.__known: OrderedDict[_Key, _Known] = OrderedDict()
        self.__asked: dict[_Key, list[_Wait]] = {}
        self.__slots = DecisionSlots[_Wait, _Key](settings.max_in_flight, settings.max_waiting)
        # A request keeps these decisions even if `forget` is called, or if the cache drops them.
        self.__prepared: WeakKeyDictionary[RequestContext, _Prepared] = WeakKeyDictionary()
        self.__schedule = services.scheduler.schedule
        # The number of calls of `forget`. A decision that began in an earlier round is not cached.
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
        """Return the decision that the request got when it was prepared, or else the one in the cache.

        If the decision is missing, deny the operation and start the decision.
        """
        key = _key(context, resource_type, resource_name)
        known, now_ns = self.__known.get(key), self.__clock.monotonic_ns()
        if known is None or now_ns >= known.renew_ns:
            self.__ask(key, None)
        prepared = self.__prepared.get(context)
        kept = None if prepared is None else prepared.decided.get((resource_type, resource_name))
        if prepared is not None and kept is not None and now_ns < max(prepared.end_ns, kept.until_ns):
            return operation in kept.allowed
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
        missing = []
        for resource in resources:
            key = _key(context, *resource)
            known = self.__known.get(key)
            if known is None or now_ns >= known.until_ns:
                missing.append(key)
            else:
                decided[resource] = known
        # The request may wait for the first half of this time, and then for its handler.
        self.__prepared[context] = _Prepared(decided, now_ns + 2 * self.settings.timeout_ms * 1_000_000)
        if not missing:
            return None
        wait = _Wait(source_of(context.client_address.host), decided, self.__round)
        for key in missing:
            self.__ask(key, wait)
        if wait.is_queued:
            self.__schedule(self.settings.timeout_ms, partial(self.__give_up, wait))
        with self.__lock:
            wait.left -= 1
            return wait.release if wait.left else None

    def forget(self) -> None:
        """Drop all decisions, e.g. because the rules have changed. Any thread may call this.

        Decisions that are being made are made again. If this is called during the second try too, the requests that
        waited when it began get its result, which is not cached. Later requests wait for a further try.
        """
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
        self.__release(waits)
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
            self.__release([wait])

    def __release(self, waits: Iterable[_Wait]) -> None:
        for wait in waits:
            try:
                wait.release.release()
            except Exception as error:
                # The other requests go on.
                self.__log(_NOT_RELEASED, error)

    def __log(self, message: str, error: BaseException) -> None:
        """Log an error. Raises no Exception, because slots are given back and requests released afterwards."""
        with suppress(Exception):
            name = type(error).__name__
            self.__failures.log((message, name), logging.WARNING, message, clipped(f"{name}: {_text(error)}"))

    def __decide(self, key: _Key) -> None:
        asked_round = self.__round
        done = self.__settle(key, self.__permitted(key), asked_round, is_last=False)
        if done is None:
            asked_round = self.__round
            done = self.__settle(key, self.__permitted(key), asked_round, is_last=True)
        while done is not None:
            waits, started, is_more = done
            for one in started:
                self.__submit(one)
            self.__release(waits)
            done = self.__go_on() if is_more else None

    def __permitted(self, key: _Key) -> frozenset[AclOperation] | None:
        """Return the decision; None if it failed."""
        try:
            allowed = frozenset(AclOperation(one) for one in self.permitted(*key))
        except BaseException as error:
            # A BaseException too, e.g. a panic of a library in Rust, must not end the thread.
            self.__results["failed"].add()
            self.__log(_FAILURE, error)
            return None
        self.__results["decided"].add()
        return allowed

    def __settle(
        self, key: _Key, allowed: frozenset[AclOperation] | None, asked_round: int, *, is_last: bool
    ) -> _Done | None:
        """Keep a decision and give its slot back; return the next steps.

        If the rules have changed meanwhile, return None, or with `is_last` give the decision to the requests that
        waited when it began. It is then not cached.
        """
        now_ns = self.__clock.monotonic_ns()
        with self.__lock:
            is_old = asked_round != self.__round and not self.__is_closed
            if is_old and not is_last:
                return None
            waits, later = self.__asked.pop(key, []), []
            if is_old:
                known = _Known(allowed or _NOTHING, now_ns, now_ns)
                later = [wait for wait in waits if wait.asked_round > asked_round]
                waits = [wait for wait in waits if wait.asked_round <= asked_round]
            else:
                known = self.__cache(key, allowed, now_ns)
            done = [wait for wait in waits if wait.take(key, known)]
            if later:
                self.__asked[key] = later
                return done, [key], False
            self.__slots.free(source_of(key.host))
            return self.__begin(done, now_ns)

    def __go_on(self) -> _Done:
        """Begin further decisions. Threads that wait for the lock run first."""
        give_way()
        with self.__lock:
            return self.__begin([], self.__clock.monotonic_ns())

    def __begin(self, done: list[_Wait], now_ns: int) -> _Done:
        """Begin decisions for which there is room now; add the requests that need no further decision to `done`."""
        started: list[_Key] = []
        for _ in range(_AT_ONCE):
            found = self.__slots.next()
            if found is None:
                return done, started, False
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
        return done, started, True

    def __cache(self, key: _Key, allowed: frozenset[AclOperation] | None, now_ns: int) -> _Known:
        """Cache a decision or its failure, and return the decision that holds now."""
        cache_ns = self.settings.cache_ms * 1_000_000
        if allowed is not None:
            return self.__keep(key, allowed, now_ns, cache_ns)
        known = self.__known.get(key)
        if known is not None and now_ns < known.until_ns:
            known = self.__known[key] = known._replace(renew_ns=now_ns + _FAILED_NS)
            return known
        return self.__keep(key, _NOTHING, now_ns, min(cache_ns, _FAILED_NS))

    def __keep(self, key: _Key, allowed: frozenset[AclOperation], now_ns: int, for_ns: int) -> _Known:
        # Remove the key's old decision first, so that the newest decision is the last of the table.
        self.__known.pop(key, None)
        for _ in range(min(_AT_ONCE, len(self.__known))):
            oldest = next(iter(self.__known))
            if now_ns < self.__known[oldest].until_ns and len(self.__known) < self.settings.cache_entries:
                break
            del self.__known[oldest]
        known = self.__known[key] = _Known(allowed, now_ns + for_ns // 2, now_ns + for_ns)
        return known


def _key(context: RequestContext, resource_type: ResourceType, resource_name: str) -> _Key:
    return _Key(context.principal, context.client_address.host, resource_type, resource_name)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "(its text cannot be made)"
