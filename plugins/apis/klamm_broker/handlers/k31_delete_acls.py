"""DeleteAcls, versions 1 to 3.

Returns, per filter, the rules that it deleted; a filter with unknown parts is refused on its own with INVALID_REQUEST.
Follows `AclApis.handleDeleteAcls`. Without an authorizer: SECURITY_DISABLED. Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from klamm import KafkaError, handles
from klamm.acl import AclBinding, AclBindingFilter, AclOperation
from klamm.wire.messages import delete_acls
from klamm.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from klamm_broker.security.acl_bindings import authorizer_of, filter_of

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.services import BrokerServices


@handles(delete_acls, versions=range(1, 4))
def delete_bindings(_broker: BrokerServices, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Delete rules. Raises KafkaError."""
    authorizer = authorizer_of(context, AclOperation.ALTER)
    filters: list[AclBindingFilter | KafkaError] = []
    for wanted in request.filters:
        try:
            filters.append(filter_of(wanted))
        except KafkaError as error:
            filters.append(error)
    outcomes = iter(authorizer.delete_acls([each for each in filters if not isinstance(each, KafkaError)]))
    return DeleteAclsResponse(
        filter_results=[_result(each if isinstance(each, KafkaError) else next(outcomes)) for each in filters]
    )


def _result(outcome: Collection[AclBinding] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(outcome, KafkaError):
        return DeleteAclsFilterResult(outcome.error_code, outcome.message)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                0,
                None,
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission,
            )
            for acl in outcome
        ],
    )
