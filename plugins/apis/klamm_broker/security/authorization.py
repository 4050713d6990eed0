"""The authorization checks of handlers, on the thread of the request. Follows Kafka's `AuthHelper`.

On a listener without an authorizer everything is allowed, at the cost of one attribute look-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import CLUSTER_NAME, AclOperation, ResourceType

NOT_REQUESTED: Final = -(2**31)
"""The value of authorized operations in a response to a request that did not ask for them."""

_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations on a resource of each type; Kafka's `AclEntry.supportedOperations`."""

_MESSAGES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Messages of Kafka's tools for these codes; some clients show only the message."""

_ALL: Final = {kind: sum(1 << operation for operation in operations) for kind, operations in _OPERATIONS.items()}


def denial(code: ErrorCode) -> KafkaError:
    """Return a denial with Kafka's message."""
    return KafkaError(code, _MESSAGES[code])


def may_topic(context: RequestContext, operation: AclOperation, name: str) -> bool:
    """Return True if the client may perform the operation on a topic."""
    return context.authorize(operation, ResourceType.TOPIC, name)


def may_group(context: RequestContext, operation: AclOperation, group_id: str) -> bool:
    """Return True if the client may perform the operation on a group."""
    return context.authorize(operation, ResourceType.GROUP, group_id)


def may_transactional_id(context: RequestContext, operation: AclOperation, transactional_id: str) -> bool:
    """Return True if the client may perform the operation on a transactional id."""
    return context.authorize(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


def shows(context: RequestContext, operation: AclOperation, kind: ResourceType, name: str) -> bool:
    """Return True if the client may perform the operation on a resource that it did not name, e.g. one in a list. The
    decision is not logged.
    """
    return context.authorize(operation, kind, name, log_if_denied=False, log_if_allowed=False)


def may_cluster(context: RequestContext, operation: AclOperation, *, log_if_denied: bool = True) -> bool:
    """Return True if the client may perform the operation on the cluster."""
    return context.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=log_if_denied)


def require_topic(context: RequestContext, operation: AclOperation, name: str) -> None:
    """Raise KafkaError(TOPIC_AUTHORIZATION_FAILED) if the client may not perform the operation."""
    if not may_topic(context, operation, name):
        raise denial(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def require_group(context: RequestContext, operation: AclOperation, group_id: str) -> None:
    """Raise KafkaError(GROUP_AUTHORIZATION_FAILED) if the client may not perform the operation."""
    if not may_group(context, operation, group_id):
        raise denial(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def require_transactional_id(context: RequestContext, operation: AclOperation, transactional_id: str) -> None:
    """Raise KafkaError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED) if the client may not perform the operation."""
    if not may_transactional_id(context, operation, transactional_id):
        raise denial(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def require_cluster(context: RequestContext, operation: AclOperation) -> None:
    """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) if the client may not perform the operation."""
    if not may_cluster(context, operation):
        raise denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def denied_topics(context: RequestContext, operation: AclOperation, names: Iterable[str]) -> frozenset[str]:
    """Return the topics on which the client may not perform the operation."""
    if context.listener.authorizer is None:
        return frozenset()
    return frozenset(name for name in set(names) if not may_topic(context, operation, name))


def authorized_operations(context: RequestContext, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return the bit field of the operations that the client may perform on a resource (KIP-430). A bit's number is the
    operation's code.
    """
    if context.listener.authorizer is None:
        return _ALL[kind]
    return sum(1 << operation for operation in _OPERATIONS[kind] if shows(context, operation, kind, name))


def cluster_operations(context: RequestContext) -> int:
    """Return the bit field for the cluster: 0 if the client may not describe the cluster."""
    if not may_cluster(context, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER)
