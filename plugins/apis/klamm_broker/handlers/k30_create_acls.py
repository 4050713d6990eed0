"""CreateAcls, versions 1 to 3.

Each rule is created or refused separately; creating an existing rule succeeds. Rules are durable before the response,
and apply from the next request on. Follows `AclApis.handleCreateAcls`. Without an authorizer: SECURITY_DISABLED.
An unknown type, operation or permission closes the connection. Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from klamm import KafkaError, Pending, RequestContext
from klamm.acl import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from klamm.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from klamm_broker.security.acl_bindings import are_known, authorizer_of, refuse_unknown
from klamm_broker.services import BrokerServices


def create_bindings(
    _broker: BrokerServices, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse | Pending:
    """Add rules. Raises KafkaError. Runs on a request handler's thread."""
    if not all(
        are_known(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
        for each in request.creations
    ):
        return refuse_unknown(context)
    authorizer = authorizer_of(context, AclOperation.ALTER)
    problems = authorizer.create_acls([_binding(creation) for creation in request.creations])
    return CreateAclsResponse(results=[_result(problem) for problem in problems])


def _result(problem: KafkaError | None) -> AclCreationResult:
    if problem is None:
        return AclCreationResult()
    return AclCreationResult(problem.error_code, problem.message)


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        AclPermission(creation.permission_type),
    )
