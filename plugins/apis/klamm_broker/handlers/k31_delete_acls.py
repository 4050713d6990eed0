"""DeleteAcls, versions 1 to 3.

Returns, per filter, the rules that it deleted. An unknown type, operation or permission closes the connection.
Follows `AclApis.handleDeleteAcls`. Without an authorizer: SECURITY_DISABLED. Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple

from klamm import KafkaError, Pending, RequestContext
from klamm.acl import AclBinding, AclOperation
from klamm.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from klamm_broker.security.acl_bindings import authorizer_of, filter_of, is_known, refuse_unknown
from klamm_broker.services import BrokerServices


def delete_bindings(
    _broker: BrokerServices, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse | Pending:
    """Delete rules. Raises KafkaError. Runs on a request handler's thread."""
    if not all(map(is_known, request.filters)):
        return refuse_unknown(context)
    authorizer = authorizer_of(context, AclOperation.ALTER)
    outcomes = authorizer.delete_acls([filter_of(wanted) for wanted in request.filters])
    return DeleteAclsResponse(filter_results=[_result(each) for each in outcomes])


def _result(outcome: Collection[AclBinding] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(outcome, KafkaError):
        return DeleteAclsFilterResult(outcome.error_code, outcome.message)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[DeleteAclsMatchingAcl(0, None, *astuple(acl)) for acl in outcome],
    )
