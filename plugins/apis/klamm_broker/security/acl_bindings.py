"""ACLs between the wire and `klamm.AclBinding`, for the three ACL APIs."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from klamm import ErrorCode, KafkaError
from klamm.acl import AclBindingFilter, AclOperation, AclPermission, PatternType, ResourceType
from klamm_broker.security.authorization import require_cluster

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm.acl import Authorizer

E = TypeVar("E", bound=IntEnum)


class WireFilter(Protocol):
    """How DescribeAcls and DeleteAcls write a filter."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def authorizer_of(context: RequestContext, operation: AclOperation) -> Authorizer:
    """The listener's authorizer, if the client may do that to the cluster.

    Raises KafkaError SECURITY_DISABLED where there is none, CLUSTER_AUTHORIZATION_FAILED.
    """
    authorizer = context.listener.authorizer
    if authorizer is None:
        where = " on the broker" if operation is AclOperation.DESCRIBE else "."
        raise KafkaError(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{where}")
    require_cluster(context, operation)
    return authorizer


def known(kind: type[E], code: int) -> E:
    """The member with that code, or UNKNOWN, whose code is 0 in all of these."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def filter_of(wire: WireFilter) -> AclBindingFilter:
    """Raises KafkaError INVALID_REQUEST for a filter with unknown parts."""
    resource_type = known(ResourceType, wire.resource_type_filter)
    pattern_type = known(PatternType, wire.pattern_type_filter)
    operation = known(AclOperation, wire.operation)
    permission = known(AclPermission, wire.permission_type)
    if 0 in (resource_type, pattern_type, operation, permission):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Filter contain UNKNOWN elements")
    return AclBindingFilter(
        resource_type,
        wire.resource_name_filter,
        pattern_type,
        wire.principal_filter,
        wire.host_filter,
        operation,
        permission,
    )
