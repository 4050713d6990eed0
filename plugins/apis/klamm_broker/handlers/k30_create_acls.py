"""CreateAcls, versions 1 to 3.

Each rule is created or refused on its own; creating one that exists succeeds. Rules are durable before the response,
and apply from the next request on. Follows `AclApis.handleCreateAcls`. Without an authorizer: SECURITY_DISABLED.
Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import KafkaError, handles
from klamm.acl import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from klamm.wire.messages import create_acls
from klamm.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from klamm_broker.security.acl_bindings import authorizer_of, known

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.services import BrokerServices


@handles(create_acls, versions=range(1, 4))
def create_bindings(_broker: BrokerServices, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Add rules. Raises KafkaError."""
    authorizer = authorizer_of(context, AclOperation.ALTER)
    problems = authorizer.create_acls([_binding(creation) for creation in request.creations])
    return CreateAclsResponse(results=[_result(problem) for problem in problems])


def _result(problem: KafkaError | None) -> AclCreationResult:
    if problem is None:
        return AclCreationResult()
    return AclCreationResult(problem.error_code, problem.message)


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        known(ResourceType, creation.resource_type),
        creation.resource_name,
        known(PatternType, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        known(AclOperation, creation.operation),
        known(AclPermission, creation.permission_type),
    )
