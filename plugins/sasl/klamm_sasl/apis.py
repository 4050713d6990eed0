"""SaslHandshake and SaslAuthenticate on a channel that is authenticated already: ILLEGAL_SASL_STATE, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, handles
from klamm.wire.messages import sasl_authenticate, sasl_handshake
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from klamm import RequestContext


@handles(sasl_handshake, versions=range(0, 2), blocking=False)
def late_handshake(_request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    """Refuse a handshake if re-authentication is off, or the last one was less than a second ago."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


@handles(sasl_authenticate, versions=range(0, 3), blocking=False)
def late_authenticate(_request: SaslAuthenticateRequest, _context: RequestContext) -> SaslAuthenticateResponse:
    """Refuse a token that no SaslHandshake preceded."""
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message)
