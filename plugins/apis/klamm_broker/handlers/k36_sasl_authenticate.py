"""SaslAuthenticate, versions 0 to 2: on a channel that is READY the answer is ILLEGAL_SASL_STATE.

Follows `KafkaApis.handleSaslAuthenticateRequest`; see SaslHandshake.
"""

from __future__ import annotations

from klamm import ErrorCode, RequestContext
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm_broker.services import BrokerServices


def late_authenticate(
    _broker: BrokerServices, _request: SaslAuthenticateRequest, _context: RequestContext
) -> SaslAuthenticateResponse:
    """Answer ILLEGAL_SASL_STATE, because the channel is authenticated or its listener has no SASL. Runs on the
    processor's thread, so it must not block.
    """
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message)
