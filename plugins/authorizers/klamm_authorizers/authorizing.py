"""`IndexAuthorizer`: the base class of `acl` and `static`, with super users, the index, the log and the counters.

Any thread that handles requests may call it, several at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from klamm import ListenerContext, RateLimitedLog, RequestContext, clipped
from klamm.acl import AclOperation, Authorizer, ResourceType, Verdict
from klamm.metrics import Counter, RatePerMinute
from klamm_authorizers.authorizer_settings import AclSettings, StaticSettings
from klamm_authorizers.index import AclIndex

log = logging.getLogger("klamm.authorizer")

_PLUGINS: Final = "kafka.server:type=plugins,name="
_LINES_A_MINUTE: Final = 5
_LINE: Final = "listener=%s principal=%s %s operation=%s host=%s resource=%s:%s rule=%s"
_NOT_KNOWN: Final = Verdict(False, "not_known")
_SUPER_USER: Final = Verdict(True, "super_user")
_SOME_RESOURCE: Final = "hardcode"
"""A name for no resource in particular: Kafka uses it to find out if resources without rules are allowed."""


class _Terms(NamedTuple):
    """Settings and rules in one value, replaced as a whole, so that no decision mixes old and new ones."""

    super_users: frozenset[str]
    default: bool
    rules: AclIndex


class IndexAuthorizer(Authorizer):
    """An authorizer that decides by `index`. It logs denials at INFO, and permissions at DEBUG, like Kafka's logger.

    Clients can cause any number of denials. So it writes at most five lines a minute for each principal, host,
    operation and resource type, and then the number of further denials. At DEBUG it writes all of them.
    """

    settings: AclSettings | StaticSettings

    def __init__(self, settings: AclSettings | StaticSettings) -> None:
        super().__init__(settings)
        # One thread may reload the settings while another, e.g. of a connection that creates ACLs, replaces the rules.
        self._lock = threading.Lock()
        self._terms = _Terms(frozenset(), False, AclIndex(()))
        self._use(settings)
        self.is_known = True
        """True if the rules are known. Until then, only super users are allowed anything."""
        self._allowed = Counter()
        self._denied = Counter()
        self._denials: RateLimitedLog | None = None

    @property
    def index(self) -> AclIndex:
        """The rules in use."""
        return self._terms.rules

    @index.setter
    def index(self, index: AclIndex) -> None:
        with self._lock:
            self._terms = self._terms._replace(rules=index)

    def _use(self, settings: AclSettings | StaticSettings, index: AclIndex | None = None) -> None:
        """Decide by these settings from now on, and by `index` if it is given."""
        with self._lock:
            self._terms = _Terms(
                frozenset(settings.super_users),
                settings.allow_everyone_if_no_acl_found,
                self.index if index is None else index,
            )
        self.settings = settings

    def open(self, listener: ListenerContext) -> None:
        """Register the metrics under the listener's name."""
        self._denials = RateLimitedLog(log, listener.services.scheduler.schedule, burst=_LINES_A_MINUTE)
        metrics = listener.services.metrics
        name = "klamm:type=Authorizer,name=DecisionsTotal"
        doc = "Decisions of the authorizer, by result."
        self._allowed = metrics.counter(name, doc, listener=listener.name, result="allowed")
        self._denied = metrics.counter(name, doc, listener=listener.name, result="denied")
        clock = listener.services.clock
        totals: dict[str, Callable[[], float]] = {
            "request": lambda: self._allowed.value + self._denied.value,
            "allowed": lambda: self._allowed.value,
            "denied": lambda: self._denied.value,
        }
        for what, total in totals.items():
            metrics.gauge(
                f"{_PLUGINS}authorization-{what}-rate-per-minute",
                f"Decisions per minute, measured over at most the last minute ({what}).",
                RatePerMinute(clock, total).read,
                listener=listener.name,
            )
        metrics.gauge(
            f"{_PLUGINS}acls-total-count",
            "Rules that the authorizer has.",
            lambda: len(self.index),
            listener=listener.name,
        )

    def authorize(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        return self.decide(context, operation, resource_type, resource_name, log_if_denied=log_if_denied).granted

    def decide(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
    ) -> Verdict:
        principal = str(context.principal)
        # A writer replaces the rules before it sets `is_known`, so read `is_known` first.
        is_known, terms = self.is_known, self._terms
        if principal in terms.super_users:
            self._allowed.add()
            return _SUPER_USER
        verdict = _NOT_KNOWN
        if is_known:
            host, default = context.client_address.host, terms.default
            verdict = terms.rules.decide(principal, host, operation, resource_type, resource_name, default=default)
        level = logging.INFO if not verdict.granted and log_if_denied else logging.DEBUG
        if log.isEnabledFor(level):
            self._log(level, context, operation, resource_type, resource_name, verdict)
        self._counted(verdict.granted)
        return verdict

    def _log(
        self,
        level: int,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        verdict: Verdict,
    ) -> None:
        principal, host = clipped(str(context.principal)), context.client_address.host
        arguments = (
            context.listener.name,
            principal,
            "allowed" if verdict.granted else "denied",
            operation.name,
            host,
            resource_type.name,
            clipped(resource_name),
            clipped(str(verdict.acl or ("default" if self.is_known else "not known"))),
        )
        if self._denials is None or level == logging.DEBUG or log.isEnabledFor(logging.DEBUG):
            log.log(level, _LINE, *arguments)
        else:
            self._denials.log((principal, host, operation, resource_type), level, _LINE, *arguments)

    def authorize_by_resource_type(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        principal, host = str(context.principal), context.client_address.host
        is_known, (super_users, default, index) = self.is_known, self._terms
        if principal in super_users:
            return self._counted(True)
        if not is_known:
            return self._counted(False)
        verdict = index.decide(principal, host, operation, resource_type, _SOME_RESOURCE, default=default)
        return self._counted(verdict.granted or index.decide_for_any(principal, host, operation, resource_type))

    def _counted(self, allowed: bool) -> bool:
        (self._allowed if allowed else self._denied).add()
        return allowed
