"""The checks that rules are made of, and the results that a rule returns. They run on the thread of the request."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import CLUSTER_NAME, AclOperation, ResourceType
from klamm.wire.error_responses import error_response
from klamm_gateway.forwarded_request import Change
from klamm_gateway.layout import Cluster

NOT_REQUESTED: Final = -(2**31)
_NAME_FIELDS: Final = ("name", "topic", "topic_name")

_CODES: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_TEXTS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.UNKNOWN_TOPIC_ID: None,
}
_OPERATIONS: Final = {
    ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
}
"""The operations on a resource of each type; Kafka's `AclEntry.supportedOperations`."""


class Forwarded(NamedTuple):
    """The request goes to the node as `message`; `change` adds the denied parts to its response."""

    message: Any
    change: Change | None = None


class LocalAnswer(NamedTuple):
    """The request does not reach the node."""

    response: Any


Verdict: TypeAlias = "Forwarded | LocalAnswer"
Rule: TypeAlias = "Callable[[Any, RequestContext, Cluster], Verdict]"
"""A rule of an API. It raises KafkaError to deny the whole request."""


def denial(resource_type: ResourceType) -> KafkaError:
    """Return the error for a denied resource."""
    code = _CODES[resource_type]
    return KafkaError(code, _TEXTS[code])


def require(context: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
    """Raise KafkaError if the client may not perform the operation on the resource."""
    if not context.authorize(operation, resource_type, name):
        raise denial(resource_type)


def require_cluster(context: RequestContext, operation: AclOperation) -> None:
    """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) if the client may not perform the operation on the cluster."""
    require(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def may(context: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
    """Return True if the client may perform the operation on a resource that it did not name, e.g. one in a list. The
    decision is not logged.
    """
    return context.authorize(operation, resource_type, name, log_if_denied=False, log_if_allowed=False)


def suffices(context: RequestContext, operation: AclOperation) -> bool:
    """Return True if the client has a right on the cluster that replaces rights on single resources. A denial is not
    logged, because other rights may suffice.
    """
    return context.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False)


def operations(context: RequestContext, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return the bit field of the operations that the client may perform (KIP-430). It replaces the bit field for the
    gateway's account.
    """
    names = _OPERATIONS[resource_type].split()
    return sum(1 << AclOperation[each] for each in names if may(context, AclOperation[each], resource_type, name))


def topic_of(element: Any, cluster: Cluster) -> str | None:
    """Return the topic that an element of a request names, by its name or its id; None for an unknown id."""
    if isinstance(element, str):
        return element
    for field in _NAME_FIELDS:
        name: str | None = getattr(element, field, None)
        if name:
            return name
    topic_id: bytes = getattr(element, "topic_id", b"")
    return cluster.topic_name(topic_id) if any(topic_id) else ""


def require_topics(context: RequestContext, cluster: Cluster, operation: AclOperation, elements: Any) -> None:
    """Raise KafkaError if one of the topics is denied or unknown."""
    for element in elements or ():
        name = topic_of(element, cluster)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        require(context, operation, ResourceType.TOPIC, name)


def named(element: Any, _cluster: Cluster) -> str | None:
    """Return the element itself, which is a name: of a group, a key or a transactional id."""
    name: str = element
    return name


@dataclass(frozen=True, slots=True)
class EachOf:
    """A rule for the elements of a list. The gateway answers for denied elements, the node for the others, in one
    response.

    `kind_of` returns an element's resource type, if the types differ. `shape_version` is given if error responses name
    the elements only up to this version. If `first_operation` is given, it must be allowed too.
    """

    request_field: str
    response_field: str
    operation: AclOperation
    resource_type: ResourceType = ResourceType.TOPIC
    name_of: Callable[[Any, Cluster], str | None] = topic_of
    shape_version: int | None = None
    kind_of: Callable[[Any], ResourceType] | None = None
    first_operation: AclOperation | None = None

    def __call__(self, message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
        allowed: list[Any] = []
        denied: dict[ErrorCode, list[Any]] = {}
        for element in getattr(message, self.request_field) or ():
            name = self.name_of(element, cluster)
            kind = self.resource_type if self.kind_of is None else self.kind_of(element)
            if name is None:
                denied.setdefault(ErrorCode.UNKNOWN_TOPIC_ID, []).append(element)
            elif self._is_allowed(context, kind, name):
                allowed.append(element)
            else:
                denied.setdefault(_CODES[kind], []).append(element)
        if not denied:
            return Forwarded(message)
        refused = self._refused(message, context.api_version, denied)
        if not allowed:
            return LocalAnswer(refused)

        def add(response: Any) -> Any:
            getattr(response, self.response_field).extend(getattr(refused, self.response_field))
            return response

        return Forwarded(with_field(message, self.request_field, allowed), add)

    def _is_allowed(self, context: RequestContext, kind: ResourceType, name: str) -> bool:
        first = self.first_operation
        return (first is None or context.authorize(first, kind, name)) and context.authorize(self.operation, kind, name)

    def _refused(self, message: Any, api_version: int, denied: dict[ErrorCode, list[Any]]) -> Any:
        """Return the response for the denied elements. Raises KafkaError if the client expects no response."""
        refused: Any = None
        for code, elements in denied.items():
            part = with_field(message, self.request_field, elements)
            version = api_version if self.shape_version is None else min(api_version, self.shape_version)
            answer = error_response(part, version, code, _TEXTS[code])
            if answer is None:
                raise KafkaError(code, _TEXTS[code])
            if refused is None:
                refused = answer
            else:
                getattr(refused, self.response_field).extend(getattr(answer, self.response_field))
        if hasattr(refused, "error_code"):
            refused.error_code = 0
        return refused


def with_field(message: Any, field: str, value: Any) -> Any:
    """Return a copy of the message with another value in one field. Observers keep the original message."""
    changed = copy(message)
    setattr(changed, field, value)
    return changed


def then(verdict: Verdict, change: Change) -> Verdict:
    """Return the verdict with a further change of the node's response. This change comes before the denied elements are
    added.
    """
    if isinstance(verdict, LocalAnswer):
        return verdict
    before = verdict.change
    return Forwarded(verdict.message, change if before is None else lambda response: before(change(response)))
