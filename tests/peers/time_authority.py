"""`TimeAuthority`: a time-stamping authority (RFC 3161), which is `openssl ts` behind a small HTTP server."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

OPENSSL = shutil.which("openssl")
CONFIG = """\
[tsa]
serial = serial
signer_cert = tsa.pem
signer_key = tsa.key
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
ess_cert_id_alg = sha256
"""


def _write(folder: Path, name: str, issued_by: tuple[x509.Certificate, Any] | None) -> tuple[x509.Certificate, Any]:
    """Write a certificate and its key: a root, or a certificate that is only for time stamps."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{folder.name} {name}")])
    issuer, issuer_key = (issued_by[0].subject, issued_by[1]) if issued_by else (subject, key)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issued_by is None, path_length=None), critical=True)
    )
    if issued_by:
        purpose = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.TIME_STAMPING])
        builder = builder.add_extension(purpose, critical=True)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem, form, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, form, plain))
    return certificate, key


class TimeAuthority:
    """The authority. `root` is the certificate to pin. It listens at `url`, except while it is `away`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self.root, self.is_away = folder, folder / "root.pem", False
        _write(folder, "tsa", _write(folder, "root", None))
        (folder / "serial").write_text("01\n")
        (folder / "openssl.cnf").write_text(CONFIG)

    def reply(self, query: bytes) -> bytes:
        """Return the response to a query."""
        (self._folder / "query").write_bytes(query)
        self._run("-reply", "-config", "openssl.cnf", "-section", "tsa", "-queryfile", "query", "-out", "response")
        return (self._folder / "response").read_bytes()

    def verifies(self, data: Path, response: Path) -> bool:
        """Return True if openssl accepts the response as a stamp for the data."""
        return self._run("-verify", "-data", data, "-in", response, "-CAfile", self.root, check=False) == 0

    def _run(self, *arguments: object, check: bool = True) -> int:
        command = [str(OPENSSL), "ts", *map(str, arguments)]
        return subprocess.run(command, cwd=self._folder, capture_output=True, timeout=60, check=check).returncode


@contextmanager
def served(authority: TimeAuthority) -> Iterator[str]:
    """Serve the authority on a free port during the block. Yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            is_query = self.headers["Content-Type"] == "application/timestamp-query"
            if authority.is_away or not is_query:
                self.send_error(503 if is_query else 400)
                return
            body = authority.reply(query)
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/tsr"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
