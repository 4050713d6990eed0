"""SaslHandshake, versions 0 and 1: on a channel that is READY the answer is ILLEGAL_SASL_STATE.

Before that, and when a session is renewed, the listener's authenticator answers the request, and this handler is not
called. Follows `KafkaApis.handleSaslHandshakeRequest`.
"""

from __future__ import annotations

from klamm import ErrorCode, RequestContext
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm_broker.services import BrokerServices


def late_handshake(
    _broker: BrokerServices, _request: SaslHandshakeRequest, _context: RequestContext
) -> SaslHandshakeResponse:
    """Answer ILLEGAL_SASL_STATE, because the channel is authenticated or its listener has no SASL. Runs on the
    processor's thread, so it must not block.
    """
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
