"""The ACL requests of tenants, called by the filter `topic_prefix`.

A tenant may only have rules for its own resources. For a tenant `*` means all of these. At the broker this is a rule
with the tenant's prefix.
"""

from __future__ import annotations

from typing import Any, Final

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import WILDCARD, PatternType, ResourceType
from klamm_filters.tenancy.tenant import Tenant

_TYPES: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
_ONE_PATTERN: Final = (PatternType.LITERAL, PatternType.PREFIXED)


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)


def _to_broker(tenant: Tenant, name: str, pattern_type: int) -> tuple[str, int]:
    if name == WILDCARD and pattern_type in (PatternType.LITERAL, PatternType.ANY):
        return tenant.prefix, int(PatternType.PREFIXED)
    return tenant.add(name), pattern_type


def _to_client(tenant: Tenant, name: str, pattern_type: int) -> tuple[str, int]:
    if name == tenant.prefix and pattern_type == PatternType.PREFIXED:
        return WILDCARD, int(PatternType.LITERAL)
    return tenant.strip(name), pattern_type


def _is_own(tenant: Tenant, rule: Any) -> bool:
    return rule.resource_type in _TYPES and rule.pattern_type in _ONE_PATTERN and tenant.owns(rule.resource_name)


def describe(request: Any, context: RequestContext, tenant: Tenant) -> None:
    """Map a filter to the broker's names. A filter for all types goes on; `described` reduces its response."""
    if request.resource_type_filter not in (ResourceType.ANY, *_TYPES):
        raise _refused("Clients that have a prefix can only have ACLs for topics, groups and transactional ids.")
    if request.resource_name_filter is not None:
        request.resource_name_filter, request.pattern_type_filter = _to_broker(
            tenant, request.resource_name_filter, request.pattern_type_filter
        )


def described(response: Any, context: RequestContext, tenant: Tenant) -> None:
    """Keep only the rules for resources of the tenant, with the tenant's names."""
    response.resources = [one for one in response.resources if _is_own(tenant, one)]
    for one in response.resources:
        one.resource_name, one.pattern_type = _to_client(tenant, one.resource_name, one.pattern_type)


def create(request: Any, context: RequestContext, tenant: Tenant) -> None:
    """Map the new rules. Refuses the whole request if one rule is not for the tenant's own resources."""
    for one in request.creations:
        if one.resource_type not in _TYPES or one.resource_pattern_type not in _ONE_PATTERN or not one.resource_name:
            raise _refused("Clients that have a prefix can only create ACLs for topics, groups and transactional ids.")
    for one in request.creations:
        one.resource_name, one.resource_pattern_type = _to_broker(tenant, one.resource_name, one.resource_pattern_type)


def delete(request: Any, context: RequestContext, tenant: Tenant) -> None:
    """Map the filters of a deletion. Refuses filters that could match rules of other tenants."""
    for one in request.filters:
        is_one = one.resource_type_filter in _TYPES and one.pattern_type_filter in _ONE_PATTERN
        if not is_one or not one.resource_name_filter:
            raise _refused(
                "Clients that have a prefix must delete ACLs by type, name and pattern type of the resource."
            )
    for one in request.filters:
        one.resource_name_filter, one.pattern_type_filter = _to_broker(
            tenant, one.resource_name_filter, one.pattern_type_filter
        )


def deleted(response: Any, context: RequestContext, tenant: Tenant) -> None:
    """Rename the deleted rules in a response to the tenant's names."""
    for result in response.filter_results:
        result.matching_acls = [one for one in result.matching_acls if _is_own(tenant, one)]
        for one in result.matching_acls:
            one.resource_name, one.pattern_type = _to_client(tenant, one.resource_name, one.pattern_type)
