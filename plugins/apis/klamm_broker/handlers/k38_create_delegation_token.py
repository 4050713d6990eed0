"""CreateDelegationToken, versions 1 to 3 (KIP-48, KIP-373 from version 3 on).

Follows `KafkaApis.handleCreateTokenRequest` and `DelegationTokenControlManager.createDelegationToken`.

- A client that is anonymous or authenticated with a token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
- A token for another user needs CREATE_TOKENS on that user: DELEGATION_TOKEN_AUTHORIZATION_FAILED.
- A renewer of another type than User: INVALID_PRINCIPAL_TYPE.
- More tokens of one owner than `delegation.token.max.per.owner`: POLICY_VIOLATION.
- No `delegation.token.secret.key`: DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, KafkaPrincipal, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from klamm_broker.security.delegation_tokens import USER_TYPE, require_token_requests
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_REQUESTERS = 3


def create_token(
    broker: BrokerServices, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Create a token. Runs on a request handler's thread."""
    requester = owner = context.principal
    if request.owner_principal_name:
        owner = KafkaPrincipal(request.owner_principal_name, request.owner_principal_type or "")
    response = CreateDelegationTokenResponse(principal_type=owner.type, principal_name=owner.name)
    if context.api_version >= _FIRST_VERSION_WITH_REQUESTERS:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    try:
        _require_allowed(request, context, owner)
        renewers = [KafkaPrincipal(each.principal_name, each.principal_type) for each in request.renewers]
        token = broker.delegation_tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        response.error_code = error.error_code
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1
        return response
    response.issue_timestamp_ms = token.issue_timestamp_ms
    response.expiry_timestamp_ms = token.expiry_timestamp_ms
    response.max_timestamp_ms = token.max_timestamp_ms
    response.token_id = token.token_id
    response.hmac = broker.delegation_tokens.hmac_of(token.token_id)
    return response


def _require_allowed(request: CreateDelegationTokenRequest, context: RequestContext, owner: KafkaPrincipal) -> None:
    require_token_requests(context)
    if owner != context.principal and not context.authorize(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(each.principal_type != USER_TYPE for each in request.renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
