"""ExpireDelegationToken, versions 1 and 2 (KIP-48): the owner or a renewer sets the end of a token. A negative period
means now.

Follows `DelegationTokenControlManager.expireDelegationToken`; same errors as RenewDelegationToken.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from klamm_broker.security.delegation_tokens import new_expiry
from klamm_broker.services import BrokerServices


def expire_token(
    broker: BrokerServices, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Set the expiry of a token. Runs on a request handler's thread."""
    error_code, expiry_ms = new_expiry(
        context, lambda: broker.delegation_tokens.expire(request.hmac, context.principal, request.expiry_time_period_ms)
    )
    return ExpireDelegationTokenResponse(error_code, expiry_timestamp_ms=expiry_ms)
