"""`TlsFiles`: a certificate authority with the files of a server and of clients, made for each run.

files = TlsFiles(tmp_path)
start(*files.server_settings(client_auth="required"))
connect(server, ssl_context=files.client_context(files.client))
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from klamm_ssl.issuing import CertificateAuthority, Identity


@dataclass(frozen=True, slots=True)
class IssuedFiles:
    """A certificate (with its chain) and its key in PEM. `both` has them in one file, which kafka-python may need."""

    identity: Identity
    certificate: Path
    key: Path
    both: Path


class TlsFiles:
    """The files. `ca` is the root in PEM; `server` is for localhost, 127.0.0.1, ::1; `client` is
    `CN=alice,OU=tests,O=klamm`.
    """

    def __init__(self, directory: Path, name: str = "klamm test CA") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.now = datetime.now(UTC)
        self.authority = CertificateAuthority.create(f"CN={name}", now=self.now)
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(self.authority.root_pem)
        self.server = self.issue("server", "CN=localhost", hosts=("localhost", "127.0.0.1", "::1"))
        self.client = self.issue("client", "CN=alice,OU=tests,O=klamm")

    def issue(self, name: str, subject: str, **options: Any) -> IssuedFiles:
        """Issue a certificate in `NAME.pem`, `NAME.key` and `NAME-both.pem`. `options` are those of
        `CertificateAuthority.issue`.
        """
        return self.write(name, self.authority.issue(subject, now=self.now, **options))

    def write(self, name: str, identity: Identity) -> IssuedFiles:
        """Write an identity to its files, and replace their content."""
        files = IssuedFiles(
            identity,
            self.directory / f"{name}.pem",
            self.directory / f"{name}.key",
            self.directory / f"{name}-both.pem",
        )
        files.certificate.write_bytes(identity.certificate_pem)
        files.key.write_bytes(identity.key_pem())
        files.both.write_bytes(identity.certificate_pem + identity.key_pem())
        return files

    def server_settings(self, listener: str = "default", **more: object) -> list[str]:
        """Return settings `KEY=VALUE` for a listener with TLS. `more` are further keys of `[listeners.NAME.ssl]`."""
        values = {
            "certificate": self.server.certificate,
            "private_key": self.server.key,
            "trust_store": self.ca,
            **more,
        }
        below = f"listeners.{listener}"
        return [f"{below}.transport=ssl", *(f"{below}.ssl.{key}={value}" for key, value in values.items())]

    def client_context(
        self, client: IssuedFiles | None = None, *, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """Return the context of a Python client. It sends the certificate of `client`, and offers only the TLS version
        `version`.
        """
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context


def revocation_list(
    authority: CertificateAuthority, revoked: Sequence[x509.Certificate], *, now: datetime, days: float = 30
) -> bytes:
    """Return a CRL of an authority in PEM."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.identity.certificate.subject)
        .last_update(now - timedelta(minutes=5))
        .next_update(now + timedelta(days=days))
    )
    for certificate in revoked:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(now).build()
        )
    return builder.sign(authority.identity.key, hashes.SHA256()).public_bytes(Encoding.PEM)
