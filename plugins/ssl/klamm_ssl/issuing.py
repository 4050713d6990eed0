"""`CertificateAuthority`: creates keys and certificates, for development and tests.

`klamm certs` and tests call it. The server never does: a listener only uses the files in its settings.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import ExtendedKeyUsageOID

# Certificates are valid from this time before now, because a peer's clock may be slow.
_BACKDATED: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key with its certificate. `chain` has the certificates between it and the root, without the root."""

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    @property
    def certificate_pem(self) -> bytes:
        """The certificate and its chain, in one file for servers."""
        return b"".join(one.public_bytes(Encoding.PEM) for one in (self.certificate, *self.chain))

    def key_pem(self, password: str | None = None) -> bytes:
        """Return the key in PKCS#8, encrypted if a password is given."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))

    def pkcs12(self, password: str, authorities: Sequence[x509.Certificate] = ()) -> bytes:
        """Return key, certificate and chain in one PKCS#12 file, like Java's keytool."""
        return serialize_key_and_certificates(
            b"klamm", self.key, self.certificate, [*self.chain, *authorities], _encryption(password)
        )


def _encryption(password: str | None) -> KeySerializationEncryption:
    return BestAvailableEncryption(password.encode()) if password else NoEncryption()


class CertificateAuthority:
    """A root, or an authority that `intermediate` of a root returned. Keys are on the curve P-256."""

    def __init__(self, identity: Identity, root: x509.Certificate) -> None:
        self.identity = identity
        self.root = root

    @classmethod
    def create(cls, subject: str, *, now: datetime, days: int = 3650) -> CertificateAuthority:
        """Return a new root. `subject` has the form of RFC 4514, e.g. `CN=klamm development CA`."""
        key = generate_private_key(SECP256R1())
        name = x509.Name.from_rfc4514_string(subject)
        builder = _builder(name, name, key, now - _BACKDATED, now + timedelta(days=days))
        certificate = _as_authority(builder, None).sign(key, hashes.SHA256())
        return cls(Identity(key, certificate), certificate)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> CertificateAuthority:
        """Return a root that `create` has made before.

        Raises ValueError for content that is not a certificate, and for a key that is not the certificate's or not on
        an elliptic curve. It does not check that the certificate is a root.
        """
        key = load_pem_private_key(key_pem, None)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ValueError("the key of the authority is not on an elliptic curve")
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        if certificate.public_key() != key.public_key():
            raise ValueError("the key does not belong to the certificate")
        return cls(Identity(key, certificate), certificate)

    @property
    def root_pem(self) -> bytes:
        """The certificate for the trust stores of peers."""
        return self.root.public_bytes(Encoding.PEM)

    def intermediate(self, subject: str, *, now: datetime, days: int = 3650) -> CertificateAuthority:
        """Return an authority below this one. It can sign leaf certificates, and no further authorities."""
        key = generate_private_key(SECP256R1())
        builder = _builder(
            x509.Name.from_rfc4514_string(subject),
            self.identity.certificate.subject,
            key,
            now - _BACKDATED,
            now + timedelta(days=days),
        )
        certificate = self._signed_by_this(_as_authority(builder, 0))
        return CertificateAuthority(Identity(key, certificate, self._chain), self.root)

    @property
    def _chain(self) -> tuple[x509.Certificate, ...]:
        own = self.identity.certificate
        return () if own == self.root else (own, *self.identity.chain)

    def issue(
        self,
        subject: str,
        *,
        now: datetime,
        hosts: Sequence[str] = (),
        days: float = 397,
        valid_from: datetime | None = None,
    ) -> Identity:
        """Return a certificate with its key: for a server if `hosts` has names or addresses, else for a client.

        If `days` is negative, the certificate has already expired.
        """
        key = generate_private_key(SECP256R1())
        start = valid_from if valid_from is not None else now - _BACKDATED
        end = now + timedelta(days=days)
        builder = _builder(
            x509.Name.from_rfc4514_string(subject),
            self.identity.certificate.subject,
            key,
            min(start, end - _BACKDATED),
            end,
        )
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(h) for h in hosts]), False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        certificate = self._signed_by_this(builder.add_extension(x509.ExtendedKeyUsage(usages), False))
        return Identity(key, certificate, self._chain)

    def _signed_by_this(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        key = self.identity.key
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        return builder.add_extension(issuer, False).sign(key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _as_authority(builder: x509.CertificateBuilder, path_length: int | None) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=path_length), True).add_extension(
        usage, True
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
