"""The reasons of failed TLS handshakes, each with a label for metrics and a message for the log.

`TlsLayer` calls `handshake_error` on the thread that runs the handshake.
"""

from __future__ import annotations

import ssl
from typing import Final

from klamm import HandshakeError

_NOT_TLS: Final = "not_tls"
_ALERT: Final = "alert_from_peer"
_BY_OPENSSL: Final = {
    "HTTP_REQUEST": (_NOT_TLS, "an HTTP request came instead of a TLS handshake"),
    "HTTPS_PROXY_REQUEST": (_NOT_TLS, "an HTTP CONNECT request came instead of a TLS handshake"),
    "WRONG_VERSION_NUMBER": (_NOT_TLS, "plain text came instead of a TLS handshake"),
    "BAD_RECORD_TYPE": (_NOT_TLS, "plain text came instead of a TLS handshake"),
    "PACKET_LENGTH_TOO_LONG": (_NOT_TLS, "plain text came instead of a TLS handshake"),
    "UNSUPPORTED_PROTOCOL": ("unsupported_version", "the client supports no TLS version that is allowed"),
    "NO_SHARED_CIPHER": ("no_shared_cipher", "client and server have no cipher suite in common"),
    "NO_SUITABLE_KEY_SHARE": ("no_shared_cipher", "client and server have no key exchange in common"),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": ("certificate_missing", "the client sent no certificate"),
}
# X.509 verification results, from OpenSSL's x509_vfy.h.
_BY_VERIFICATION: Final = {
    3: "certificate_revocation_unknown",
    9: "certificate_not_yet_valid",
    10: "certificate_expired",
    11: "certificate_revocation_unknown",
    12: "certificate_revocation_unknown",
    18: "certificate_unknown_authority",
    19: "certificate_unknown_authority",
    20: "certificate_unknown_authority",
    21: "certificate_unknown_authority",
    23: "certificate_revoked",
}
REASONS: Final = frozenset(
    {
        _ALERT,
        "certificate_invalid",
        "no_matching_rule",
        "protocol_error",
        "unknown_server_name",
        *(reason for reason, _ in _BY_OPENSSL.values()),
        *_BY_VERIFICATION.values(),
    }
)


def handshake_error(error: ssl.SSLError, name_refused: bool, server_name: str) -> Exception:
    """Return the exception for an error of `do_handshake`: usually a HandshakeError.

    If the peer closed the connection, it is a ConnectionResetError.
    """
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)):
        return ConnectionResetError("closed by peer during the TLS handshake")
    if name_refused:
        return HandshakeError("unknown_server_name", f"there is no certificate for the server name {server_name!r}")
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _BY_VERIFICATION.get(error.verify_code, "certificate_invalid")
        return HandshakeError(reason, f"the client's certificate was refused: {error.verify_message}")
    name = (error.reason or "").replace(" ", "_")
    if "_ALERT_" in name:
        said = name.rpartition("_ALERT_")[2].replace("_", " ").lower()
        return HandshakeError(_ALERT, f"the client ended the TLS handshake: {said}")
    reason, detail = _BY_OPENSSL.get(name, ("protocol_error", f"TLS handshake: {name or error}"))
    return HandshakeError(reason, detail)
