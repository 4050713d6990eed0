"""`facts_of` and `listener_of`: they give extensions in the parent the listeners of the workers.

A worker sends the facts when it is ready. The parent makes contexts of listeners from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm.api.acl import AclOperation, ResourceType, Verdict
from klamm.api.context import Address, ListenerContext, RequestContext, ServerServices

_FACTS: Final = (
    "name",
    "security_protocol",
    "transport",
    "node",
    "configured_as",
    "reads_requests",
    "renames_topics",
    "api_set",
)


def facts_of(listener: ListenerContext) -> dict[str, Any]:
    """Return the facts of a listener as a JSON object. A worker calls this."""
    return {name: getattr(listener, name) for name in _FACTS} | {
        "bound": listener.bound,
        "advertised": listener.advertised,
        "parts": listener.parts,
        "is_authorized": listener.authorizer is not None,
    }


def listener_of(facts: Mapping[str, Any], services: ServerServices) -> ListenerContext:
    """Return the context of a listener with these facts. Its parts are in the workers."""
    return ListenerContext(
        bound=Address(*facts["bound"]),
        advertised=Address(*facts["advertised"]),
        services=services,
        authorizer=_InTheWorkers() if facts["is_authorized"] else None,
        parts=tuple(facts["parts"]),
        **{name: facts[name] for name in _FACTS},
    )


class _InTheWorkers:
    """Stands for an authorizer of the workers. It knows no rules, and therefore denies everything."""

    def decide(
        self,
        context: RequestContext,  # noqa: ARG002
        operation: AclOperation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        resource_name: str,  # noqa: ARG002
        *,
        log_if_denied: bool = True,  # noqa: ARG002
    ) -> Verdict:
        """Deny the operation."""
        return Verdict(False, "not_known")

    def authorize_by_resource_type(
        self,
        context: RequestContext,  # noqa: ARG002
        operation: AclOperation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
    ) -> bool:
        """Deny the operation on every resource."""
        return False
