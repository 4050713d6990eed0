"""`ClientTrust`: checks if a client's certificate is still trusted, when files change while the client is connected.

The transport `ssl` uses it when a session starts and when files have changed, on any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_AUTHORITIES = 1024


class CertificateId(NamedTuple):
    """The parts of a certificate that `ClientTrust` compares. Names and keys are in DER."""

    subject: bytes
    public_key: bytes
    issuer: bytes
    serial: int
    not_after_ms: int
    der: bytes


Chain: TypeAlias = tuple[CertificateId, ...]
"""A client's certificate, and the certificates of authorities above it that the handshake has found."""


def identify(der: bytes) -> CertificateId:
    """Return the identity of a certificate. Raises ValueError if it is invalid."""
    certificate = x509.load_der_x509_certificate(der)
    return CertificateId(
        certificate.subject.public_bytes(),
        certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        certificate.issuer.public_bytes(),
        certificate.serial_number,
        int(certificate.not_valid_after_utc.timestamp() * 1000),
        der,
    )


# Cached, so that connections with the same authorities share their identities.
_identify_authority = functools.lru_cache(_AUTHORITIES)(identify)


def chain_of(ders: Sequence[bytes]) -> Chain:
    """Return the identities of certificates in DER, the client's first. Raises ValueError if one is invalid."""
    return (identify(ders[0]), *map(_identify_authority, ders[1:]))


class ClientTrust:
    """The trust store and the revocation lists at one moment. It never changes, so any thread may use it.

    It is less strict than a handshake: a session continues even if a revocation list is missing or out of date.
    """

    def __init__(self, authorities: Sequence[bytes], revocation_lists: Sequence[bytes], *, leaf_only: bool) -> None:
        """Create it from certificates and revocation lists in DER."""
        self._anchors: dict[tuple[bytes, bytes], CertificateId] = {}
        self._knows_all_anchors = True
        for der in authorities:
            try:
                anchor = identify(der)
            except (ValueError, x509.InvalidVersion):
                # OpenSSL may still accept this certificate as an anchor.
                self._knows_all_anchors = False
            else:
                self._anchors[anchor.subject, anchor.public_key] = anchor
        self._lists: dict[bytes, list[x509.CertificateRevocationList]] = {}
        for der in revocation_lists:
            found = x509.load_der_x509_crl(der)
            self._lists.setdefault(found.issuer.public_bytes(), []).append(found)
        self._leaf_only = leaf_only

    def rejection_reason(self, chain: Chain, *, is_whole: bool) -> str | None:
        """Return the reason why a client's certificate has lost its trust, or None if it is still trusted.

        A complete chain (`is_whole`) ends at a certificate that was trusted at the handshake. For a resumed session
        only the client's own certificate is known.
        """
        for certificate in chain[:1] if self._leaf_only else chain:
            if self._is_revoked(certificate):
                which = "client certificate" if certificate is chain[0] else "certificate of an authority"
                return f"the {which} was revoked"
        if is_whole and self._knows_all_anchors and not self._leads_to_anchor(chain):
            return "no trusted authority issued the client certificate"
        return None

    def _is_revoked(self, certificate: CertificateId) -> bool:
        return any(
            one.get_revoked_certificate_by_serial_number(certificate.serial) is not None
            for one in self._lists.get(certificate.issuer, ())
        )

    def _leads_to_anchor(self, chain: Chain) -> bool:
        if any((each.subject, each.public_key) in self._anchors for each in chain):
            return True
        # The chain may end with a certificate whose issuer is trusted now.
        last = chain[-1]
        return any(anchor.subject == last.issuer and _has_issued(anchor, last) for anchor in self._anchors.values())


def _has_issued(authority: CertificateId, certificate: CertificateId) -> bool:
    try:
        x509.load_der_x509_certificate(certificate.der).verify_directly_issued_by(
            x509.load_der_x509_certificate(authority.der)
        )
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
