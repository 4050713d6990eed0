"""DescribeDelegationToken, versions 1 to 3 (KIP-48, KIP-373): the tokens of certain owners or of all, with secrets.

Authorization: a client sees the tokens that it owns or may renew. To see another token, it needs DESCRIBE on the token
or DESCRIBE_TOKENS on the token's owner. The other tokens are left out. Follows `KafkaApis.handleDescribeTokensRequest`
and `DelegationTokenManager.filterToken`. With an empty list of owners the answer has no tokens.

- A client that is anonymous or authenticated with a token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
- No `delegation.token.secret.key`: DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from klamm import KafkaPrincipal, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.sasl import DelegationToken
from klamm.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from klamm_broker.security.authorization import shows
from klamm_broker.security.delegation_tokens import require_token_requests
from klamm_broker.services import BrokerServices


def tokens_of_owners(
    broker: BrokerServices, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Describe tokens. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_token_requests(context)
    owners = None
    if request.owners is not None:
        owners = {KafkaPrincipal(each.principal_name, each.principal_type) for each in request.owners}
    tokens = broker.delegation_tokens.all()
    context.expect_answer(len(tokens))
    return DescribeDelegationTokenResponse(
        tokens=[
            DescribedDelegationToken(
                token.owner.type,
                token.owner.name,
                token.requester.type,
                token.requester.name,
                token.issue_timestamp_ms,
                token.expiry_timestamp_ms,
                token.max_timestamp_ms,
                token.token_id,
                broker.delegation_tokens.hmac_of(token.token_id),
                [DescribedDelegationTokenRenewer(each.type, each.name) for each in token.renewers],
            )
            for token in tokens
            if (owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers)))
            and _may_see(context, token)
        ]
    )


def _may_see(context: RequestContext, token: DelegationToken) -> bool:
    if token.owner_or_renewer(context.principal):
        return True
    return shows(context, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id) or shows(
        context, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner)
    )
