"""`rights`: the operations that a principal may perform, with the reasons. It asks a listener's authorizer, as requests
do.
"""

from __future__ import annotations

import logging
import threading
from ipaddress import ip_address
from typing import Any, Final

from klamm import Address, ConnectionContext, KafkaPrincipal, ListenerContext, RequestContext, ServerServices
from klamm.acl import CLUSTER_NAME, AclBinding, AclOperation, ResourceType, Verdict
from klamm.wire.messages import describe_acls
from klamm_console.worker_answers import answered

log = logging.getLogger("klamm.console")

OPERATIONS: Final = {
    "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "GROUP": "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "CLUSTER": "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    "TRANSACTIONAL_ID": "WRITE DESCRIBE TWO_PHASE_COMMIT",
    "DELEGATION_TOKEN": "DESCRIBE",
    "USER": "CREATE_TOKENS DESCRIBE_TOKENS",
}
"""The operations that Kafka has for each type of resource."""
_REASONS: Final = {
    ("super_user", True): "a super user may do everything",
    ("no_acl_found", True): "no rule is about this resource, so everything is allowed",
    ("no_acl_found", False): "no rule allows it",
    ("not_known", False): "the authorizer does not know its rules yet",
    ("", True): "the authorizer gives no reason",
    ("", False): "the authorizer gives no reason",
}
_WITHIN_S: Final = 10.0
_RULES: Final = {"acl": "this ACL", "static_rule": "this rule of the file"}


class _NoClient:
    """The `Responder` of a check that is not for a client's request."""

    def respond(self, context: RequestContext, response: Any) -> None:
        """Drop the answer."""

    def close_connection(self, context: RequestContext, reason: str) -> None:
        """Close nothing."""


def rights(
    listener: ListenerContext, principal: str, host: str, resource_type: str, name: str, operation: str
) -> dict[str, Any]:
    """Return for an operation (or for each operation, if it is empty) whether a principal at a host may perform it, and
    the deciding rule.

    Raises ValueError for an unknown resource type or operation.
    """
    _check(principal, host, resource_type, name, operation)
    known = OPERATIONS[resource_type].split()
    if resource_type == "CLUSTER":
        name = CLUSTER_NAME
    kind, separator, user = principal.partition(":")
    asked = KafkaPrincipal(user, kind) if separator else KafkaPrincipal(principal)
    client = Address(str(ip_address(host)), 0)
    connection = ConnectionContext("", listener, listener.bound, client, asked)
    context = RequestContext(connection, _NoClient(), describe_acls.API_KEY, 0, 0, "")
    return {
        "listener": listener.name,
        "principal": str(asked),
        "host": client.host,
        "resource": resource_type,
        "name": name,
        "operations": [
            {"operation": each, **_decided(context, AclOperation[each], ResourceType[resource_type], name)}
            for each in ([operation] if operation else known)
        ],
    }


def _check(_principal: str, host: str, resource_type: str, _name: str, operation: str) -> None:
    ip_address(host)
    if resource_type not in OPERATIONS:
        raise ValueError(f"resource must be one of {', '.join(OPERATIONS)}")
    known = OPERATIONS[resource_type].split()
    if operation and operation not in known:
        raise ValueError(f"operation must be one of {', '.join(known)}")


def rights_anywhere(services: ServerServices, listener: ListenerContext, *asked: str) -> dict[str, Any]:
    """Return the result of `rights`; in the parent of workers, ask a worker, because the workers have the authorizers.

    Raises OSError if no worker has an answer.
    """
    if services.workers is None:
        return rights(listener, *asked)
    _check(*asked)
    function = "klamm_console.access:rights_in_worker"
    found: dict[str, Any] = answered(services.workers.call_one(function, (listener.name, *asked), _WITHIN_S))
    return found


def rights_on_cluster(services: ServerServices, listener: ListenerContext, user: str, host: str) -> dict[str, bool]:
    """Return the rights of a user to describe and to alter the cluster, without a request to the listener.

    Raises OSError if no worker answers.
    """
    found = rights_anywhere(services, listener, f"User:{user}", host, "CLUSTER", "", "")
    allowed = {each["operation"]: bool(each["allowed"]) for each in found["operations"]}
    return {"may_describe": allowed["DESCRIBE"], "may_alter": allowed["ALTER"]}


def rights_in_worker(services: ServerServices, listener: str, *asked: str) -> dict[str, Any]:
    """Return the result of `rights`, in a worker for its parent."""
    return rights(services.listeners[listener], *asked)


def _decided(
    context: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str
) -> dict[str, Any]:
    authorizer: Any = context.listener.authorizer
    if authorizer is None:
        return _row(Verdict(True), "the listener has no authorizer, so everything is allowed")
    try:
        _prepare(authorizer, context, resource_type, name)
        # Not logged, because no client's request is refused.
        verdict: Verdict = authorizer.decide(context, operation, resource_type, name, log_if_denied=False)
    except Exception as error:
        context.listener.failures.log(log, authorizer, "authorize", error)
        return _row(Verdict(False), f"the authorizer fails with {type(error).__name__}; the log has more")
    reason = _REASONS.get((verdict.decided_by, verdict.granted)) or _RULES.get(verdict.decided_by, verdict.decided_by)
    return _row(verdict, reason)


def _prepare(authorizer: Any, context: RequestContext, resource_type: ResourceType, name: str) -> None:
    """Wait for an authorizer that decides later, as a request does."""
    try:
        release = authorizer.prepare(context, [(resource_type, name)])
    except Exception as error:
        # As for a request, `decide` is called in any case.
        context.listener.failures.log(log, authorizer, "prepare", error)
        return
    if release is not None:
        decided = threading.Event()
        release.when_released(decided.set)
        decided.wait(authorizer.prepare_max_ms / 1000)


def _row(verdict: Verdict, reason: str) -> dict[str, Any]:
    rule = acl_row(verdict.acl) if verdict.acl is not None else None
    return {"allowed": bool(verdict.granted), "reason": reason, "decided_by": verdict.decided_by, "rule": rule}


def acl_row(rule: AclBinding) -> dict[str, Any]:
    """Return a rule as JSON."""
    return {
        "resource": rule.resource_type.name,
        "name": rule.resource_name,
        "pattern": rule.pattern_type.name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name,
        "permission": rule.permission.name,
    }
