"""`LaterAuthorizer`: a base class of authorizers whose decisions take time, e.g. because a policy engine decides."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from klamm.api.acl import AclOperation, ResourceType
from klamm.api.authorizer import Authorizer
from klamm.api.context import ListenerContext, RequestContext
from klamm.api.filters import Release
from klamm.config.setting import setting
from klamm.logs.escaping import clipped
from klamm.logs.rate_limited import RateLimitedLog
from klamm.metrics.metrics_registry import Counter
from klamm.runtime.workers import Workers
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
        doc="Maximum of decisions being made, half of it for the clients of one address. What exceeds it is denied.",
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


class _Wait:
    """A request that waits for `left` decisions. The authorizer's lock protects `left`.

    `left` starts at 1, so that it cannot reach 0 before `prepare` has asked for all decisions.
    """

    def __init__(self) -> None:
        self.left = 1
        self.release = Release()


class LaterAuthorizer(Authorizer):
    """An authorizer that decides with `permitted`, which may wait for a peer, on threads of its own.

    A request waits, without a thread, for the decisions about the resources that it names. Later requests of its
    connection wait too. Decisions are cached. An operation is denied if its decision fails, comes too late or exceeds a
    limit. A resource that the request does not name, e.g. an element of a list, is denied until a decision about it is
    in the cache; `authorize` starts that decision.
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
        # Keys of `__asked` by the source of their host.
        self.__asked_of: dict[str, int] = {}
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
            services.metrics.gauge(f"{name}{what}", doc, partial(len, table), listener=listener.name)
            for what, doc, table in (
                ("InFlight", "Decisions that are being made.", self.__asked),
                ("CachedDecisions", "Decisions in the cache.", self.__known),
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
        """Decide from the cache. If the decision is missing, deny the operation and start the decision."""
        key = _key(context, resource_type, resource_name)
        known, now_ns = self.__known.get(key), self.__clock.monotonic_ns()
        if known is None or now_ns >= known.renew_ns:
            self.__ask(key, None)
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
        found = [(key, self.__known.get(key)) for key in (_key(context, *resource) for resource in resources)]
        if all(known is not None and now_ns < known.until_ns for _, known in found):
            return None
        wait = _Wait()
        # The request has to wait in any case, so decisions that would expire meanwhile are renewed too.
        end_ns = now_ns + self.settings.timeout_ms * 1_000_000
        for key, known in found:
            if known is None or now_ns >= known.until_ns or (known.allowed and end_ns >= known.until_ns):
                self.__ask(key, wait)
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
        for waits in asked.values():
            for wait in waits:
                wait.release.release()
        self.__workers.close(0)

    def __ask(self, key: _Key, wait: _Wait | None) -> None:
        if len(key.resource_name) > _MAX_NAME or len(key.principal.name) > _MAX_NAME:
            # Denied and not cached: clients choose these names, and the cache has a limit by number.
            self.__results["refused"].add()
            return
        with self.__lock:
            waits = self.__asked.get(key)
            is_new = waits is None
            if waits is None:
                source, maximum = source_of(key.host), self.settings.max_in_flight
                of_source = self.__asked_of.get(source, 0)
                if self.__is_closed or len(self.__asked) >= maximum or of_source >= max(1, maximum // 2):
                    self.__results["refused"].add()
                    return
                waits = self.__asked[key] = []
                self.__asked_of[source] = of_source + 1
            if wait is not None:
                wait.left += 1
                waits.append(wait)
        if is_new:
            self.__workers.submit(partial(self.__decide, key), source_of(key.host))

    def __decide(self, key: _Key) -> None:
        done = None
        while done is None:
            asked_round = self.__round
            decided = self.__permitted(key)
            done = self.__settle(key, decided, asked_round)
        for wait in done:
            wait.release.release()

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

    def __settle(self, key: _Key, allowed: frozenset[AclOperation] | None, asked_round: int) -> list[_Wait] | None:
        """Keep a decision; return the requests that wait for no other. None if the rules have changed meanwhile."""
        now_ns, cache_ns = self.__clock.monotonic_ns(), self.settings.cache_ms * 1_000_000
        done = []
        with self.__lock:
            if asked_round != self.__round and not self.__is_closed:
                return None
            known = self.__known.get(key)
            if allowed is not None:
                self.__keep(key, allowed, now_ns, cache_ns)
            elif known is not None and now_ns < known.until_ns:
                self.__known[key] = known._replace(renew_ns=now_ns + _FAILED_NS)
            else:
                self.__keep(key, _NOTHING, now_ns, min(cache_ns, _FAILED_NS))
            for wait in self.__end(key):
                wait.left -= 1
                if not wait.left:
                    done.append(wait)
        return done

    def __end(self, key: _Key) -> list[_Wait]:
        waits = self.__asked.pop(key, None)
        if waits is None:
            # The authorizer was closed meanwhile.
            return []
        source = source_of(key.host)
        self.__asked_of[source] -= 1
        if not self.__asked_of[source]:
            del self.__asked_of[source]
        return waits

    def __keep(self, key: _Key, allowed: frozenset[AclOperation], now_ns: int, for_ns: int) -> None:
        # Removed first, so that the newest decision is the last in the order of the dict.
        self.__known.pop(key, None)
        while self.__known:
            oldest = next(iter(self.__known))
            if now_ns < self.__known[oldest].until_ns and len(self.__known) < self.settings.cache_entries:
                break
            del self.__known[oldest]
        self.__known[key] = _Known(allowed, now_ns + for_ns // 2, now_ns + for_ns)


def _key(context: RequestContext, resource_type: ResourceType, resource_name: str) -> _Key:
    return _Key(context.principal, context.client_address.host, resource_type, resource_name)
