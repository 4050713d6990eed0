"""The base class of `acl` and `static`: super users, the index, the log and the counters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

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
"""Kafka authorizes this name to find out if resources without rules are allowed."""


class IndexAuthorizer(Authorizer):
    """Decides by `index`. Logs denials at INFO and permissions at DEBUG, like Kafka's `kafka.authorizer.logger`.

    Clients can cause any number of denials. Therefore five lines a minute are written for each principal, host,
    operation and type of resource, then their number. DEBUG has all of them.
    """

    settings: AclSettings | StaticSettings

    def __init__(self, settings: AclSettings | StaticSettings) -> None:
        super().__init__(settings)
        self._super_users = frozenset(settings.super_users)
        self._default = settings.allow_everyone_if_no_acl_found
        self.index = AclIndex(())
        self.is_known = True
        """True if the rules are known; without them only super users are allowed anything."""
        self._allowed = Counter()
        self._denied = Counter()
        self._denials: RateLimitedLog | None = None

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
        if principal in self._super_users:
            self._allowed.add()
            return _SUPER_USER
        verdict = self._decide(principal, context.client_address.host, operation, resource_type, resource_name)
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
        if principal in self._super_users:
            return self._counted(True)
        if not self.is_known:
            return self._counted(False)
        verdict = self.index.decide(principal, host, operation, resource_type, _SOME_RESOURCE, default=self._default)
        return self._counted(verdict.granted or self.index.decide_for_any(principal, host, operation, resource_type))

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, resource_name: str
    ) -> Verdict:
        if not self.is_known:
            return _NOT_KNOWN
        return self.index.decide(principal, host, operation, resource_type, resource_name, default=self._default)

    def _counted(self, allowed: bool) -> bool:
        (self._allowed if allowed else self._denied).add()
        return allowed
