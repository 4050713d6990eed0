"""The mechanism EXTERNAL: RFC 4422, appendix A. The transport provides the principal, e.g. from a certificate.

The authenticator `sasl` calls it on the processor's thread.
"""

from __future__ import annotations

from klamm import ANONYMOUS, ConnectionContext, KafkaPrincipal, TransportLayer
from klamm.sasl import SaslAuthenticationError, SaslError, SaslMechanism, SaslServer, SaslSuccess


class ExternalMechanism(SaslMechanism):
    """The mechanism EXTERNAL of one listener. It never waits: the transport has verified the client before."""

    def server(self, connection: ConnectionContext, transport: TransportLayer) -> ExternalServer:
        return ExternalServer(transport.principal)


class ExternalServer(SaslServer):
    """One exchange. It has a single message, which is empty or names the principal."""

    def __init__(self, principal: KafkaPrincipal) -> None:
        self._principal = principal

    def evaluate(self, token: bytes) -> SaslSuccess:
        if self._principal == ANONYMOUS:
            raise SaslError("the transport has not verified a principal; EXTERNAL needs a client certificate")
        self.claimed = self._principal.name
        if token and token != self._principal.name.encode():
            self.claimed = token.decode(errors="replace")
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from its principal"
            )
        return SaslSuccess(self._principal)
