"""DescribeAcls, versions 1 to 3.

Returns the rules that match, by resource pattern. Follows `AclApis.handleDescribeAcls`. Without an authorizer:
SECURITY_DISABLED. An unknown type, operation or permission closes the connection. Authorization: DESCRIBE on the
cluster.
"""

from __future__ import annotations

from itertools import groupby

from klamm import Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from klamm_broker.security.acl_bindings import authorizer_of, filter_of, is_known, refuse_unknown
from klamm_broker.services import BrokerServices


def matching_acls(
    _broker: BrokerServices, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse | Pending:
    """Return the ACLs that match. Raises KafkaError. Runs on a request handler's thread."""
    if not is_known(request):
        return refuse_unknown(context)
    authorizer = authorizer_of(context, AclOperation.DESCRIBE)
    found = sorted(authorizer.acls(filter_of(request)))
    resources = [
        DescribeAclsResource(*pattern, [AclDescription(a.principal, a.host, a.operation, a.permission) for a in acls])
        for pattern, acls in groupby(found, lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type))
    ]
    return DescribeAclsResponse(resources=resources)
