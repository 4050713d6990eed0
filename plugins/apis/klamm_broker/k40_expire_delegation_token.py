"""ExpireDelegationToken, versions 1 and 2 (KIP-48): the owner or a renewer sets when a token ends; negative is now.

Follows `DelegationTokenControlManager.expireDelegationToken`; errors as of RenewDelegationToken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import KafkaError, handles
from klamm.wire.messages import expire_delegation_token
from klamm.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from klamm_broker.delegation_tokens import require_token_requests

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.broker import Broker


@handles(expire_delegation_token, versions=range(1, 3))
def expire_token(
    broker: Broker, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Move the expiry."""
    try:
        require_token_requests(context)
        expiry_ms = broker.delegation_tokens.expire(request.hmac, context.principal, request.expiry_time_period_ms)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error.error_code, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
