"""RenewDelegationToken, versions 1 and 2 (KIP-48): the owner or a renewer extends a token, up to its maximum lifetime.

Follows `DelegationTokenControlManager.renewDelegationToken`.

- A client that is anonymous or authenticated with a token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
- No such token: DELEGATION_TOKEN_NOT_FOUND; an expired one: DELEGATION_TOKEN_EXPIRED; a client that is neither owner
  nor renewer: DELEGATION_TOKEN_OWNER_MISMATCH. No `delegation.token.secret.key`: DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from klamm_broker.security.delegation_tokens import new_expiry
from klamm_broker.services import BrokerServices


def renew_token(
    broker: BrokerServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Extend a token. The response has the new expiry. Runs on a request handler's thread."""
    error_code, expiry_ms = new_expiry(
        context, lambda: broker.delegation_tokens.renew(request.hmac, context.principal, request.renew_period_ms)
    )
    return RenewDelegationTokenResponse(error_code, expiry_timestamp_ms=expiry_ms)
