"""From settings and the content of files to `ssl.SSLContext`s.

Files are read first, all of them, and everything is made of what was read: what is compared at a reload is what is in
use. Keys reach OpenSSL, which takes only files, through memory files where the system has them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm_ssl.certificate import read_certificate
from klamm_ssl.settings import SslSettings

_PEM: Final = b"-----BEGIN "
_CERTIFICATE_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_CERTIFICATE_END: Final = "-----END CERTIFICATE-----"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
DEFAULT_NAME: Final = "default"


class SslFilesError(Exception):
    """Certificates, keys or trust that cannot be used; the message says which and why, and holds no secret."""


class ServerSocket(ssl.SSLSocket):
    """Remembers what the client asked for in SNI, and whether it was refused."""

    server_name = ""
    name_refused = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a certificate and its key are: paths or the PEM itself."""

    certificate: Path | str
    chain: Path | None
    private_key: Path | str | None
    is_keystore: bool
    password: _Password


@dataclass(frozen=True, slots=True)
class _Password:
    file: Path | None
    variable: str | None


class SslContexts(NamedTuple):
    """`context` serves; `expirations` are the ends of its certificates, by server name."""

    context: ssl.SSLContext
    expirations: Mapping[str, datetime]


class SslFiles:
    """The files that some settings name, at one moment.

    `digest` changes when any content does. Raises SslFilesError for what cannot be read.
    """

    def __init__(self, settings: SslSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = environment
        self._identities = {
            DEFAULT_NAME: _default_identity(settings),
            **{host.lower(): _identity_of(files) for host, files in settings.sni.items()},
        }
        self._contents = {path: _read(path) for path in sorted(self._paths())}
        digest = hashlib.sha256()
        for path, content in self._contents.items():
            digest.update(f"{path}\0{len(content)}\0".encode())
            digest.update(content)
        self.digest = digest.digest()

    def _paths(self) -> set[Path]:
        settings = self._settings
        found: set[Path | str | None] = {
            settings.trust_store,
            settings.trust_store_password_file,
            *settings.revocation_lists,
        }
        for identity in self._identities.values():
            found |= {identity.certificate, identity.chain, identity.private_key, identity.password.file}
        return {path for path in found if isinstance(path, Path)}

    def contexts(self) -> SslContexts:
        """What serves with these files. Raises SslFilesError."""
        trust = self._trust()
        contexts, expirations = {}, {}
        for name, identity in self._identities.items():
            contexts[name], expirations[name] = self._context(identity, trust)
        default = contexts[DEFAULT_NAME]
        refuse = self._settings.unknown_server_name == "refuse"
        default.sni_callback = _choose_by_name(contexts, refuse)
        return SslContexts(default, expirations)

    def _context(self, identity: Identity, trust: bytes) -> tuple[ssl.SSLContext, datetime]:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslsocket_class = ServerSocket
        context.minimum_version = _VERSIONS[settings.min_version]
        context.maximum_version = _VERSIONS[settings.max_version]
        if context.minimum_version > context.maximum_version:
            raise SslFilesError(f"min_version {settings.min_version} is above max_version {settings.max_version}")
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        if settings.ciphers is not None:
            try:
                context.set_ciphers(settings.ciphers)
            except ssl.SSLError as error:
                raise SslFilesError(f"ciphers: {settings.ciphers}: OpenSSL knows none of these") from error
        context.verify_mode = _VERIFY[settings.client_auth]
        if trust:
            # Java takes whatever a trust store holds for an anchor, not roots alone.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if settings.revocation_lists:
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
            with _as_file(trust) as name:
                _loading("trust_store or revocation_lists", lambda: context.load_verify_locations(name))
        elif settings.client_auth != "none":
            raise SslFilesError(f'client_auth = "{settings.client_auth}" needs trust_store or trust_store_pem')
        return context, self._load_identity(context, identity)

    def _trust(self) -> bytes:
        settings = self._settings
        parts = []
        if settings.trust_store is not None:
            content = self._contents[settings.trust_store]
            if _PEM not in content:
                password = _Password(settings.trust_store_password_file, settings.trust_store_password_env)
                content = _trusted_of_keystore(content, self._password(password), settings.trust_store)
            parts.append(content)
        if settings.trust_store_pem is not None:
            parts.append(settings.trust_store_pem.encode())
        if parts:
            parts += [self._contents[path] for path in settings.revocation_lists]
        return b"\n".join(parts)

    def _load_identity(self, context: ssl.SSLContext, identity: Identity) -> datetime:
        password = self._password(identity.password)
        certificate = self._content(identity.certificate)
        label = str(identity.certificate) if isinstance(identity.certificate, Path) else "certificate_pem"
        if identity.is_keystore:
            pem = _pem_of_keystore(certificate, password, label)
            password = None
        else:
            others = [self._content(one) for one in (identity.chain, identity.private_key) if one is not None]
            pem = b"\n".join([certificate, *others])

        def ask_for_password() -> str:
            # Without this OpenSSL would ask on the terminal.
            if password is None:
                raise SslFilesError(f"the private key of {label} is encrypted: set key_password_file or _env")
            return password

        with _as_file(pem) as name:
            _loading(label, lambda: context.load_cert_chain(name, password=ask_for_password))
        return _expiration(pem, label)

    def _content(self, source: Path | str) -> bytes:
        return self._contents[source] if isinstance(source, Path) else source.encode()

    def _password(self, password: _Password) -> str | None:
        if password.file is not None:
            return self._contents[password.file].decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
        if password.variable is not None:
            if password.variable not in self._environment:
                raise SslFilesError(f"the environment variable {password.variable} is not set")
            return self._environment[password.variable]
        return None


def _default_identity(settings: SslSettings) -> Identity:
    sources = [settings.certificate, settings.certificate_pem, settings.keystore]
    given = [source for source in sources if source is not None]
    if len(given) != 1:
        raise SslFilesError("one of certificate, certificate_pem and keystore must be set; `klamm certs` can make one")
    return Identity(
        given[0],
        settings.chain,
        settings.private_key if settings.private_key is not None else settings.private_key_pem,
        settings.keystore is not None,
        _Password(settings.key_password_file, settings.key_password_env),
    )


def _identity_of(files: Mapping[str, Path]) -> Identity:
    return Identity(
        files["keystore"] if "keystore" in files else files["certificate"],
        files.get("chain"),
        files.get("private_key"),
        "keystore" in files,
        _Password(files.get("key_password_file"), None),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SslFilesError(f"{path}: {error.strerror}") from error


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A name under which OpenSSL can read some bytes, with no disk touched where the system has memory files."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with os.fdopen(os.memfd_create("klamm-ssl", os.MFD_CLOEXEC), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        # The directory is for this user only.
        with tempfile.TemporaryDirectory(prefix="klamm-ssl-") as directory:
            path = Path(directory) / "pem"
            path.write_bytes(content)
            yield str(path)


_CAUSES: Final = {
    "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
    "BAD_DECRYPT": "the password is wrong",
    "PEM_LIB": "there is no usable certificate, no private key, or the password is wrong",
    "NO_START_LINE": "there is nothing in PEM",
    "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate in it",
}


def _loading(what: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        # OpenSSL names no reason for what it cannot find in a file.
        reason = (error.reason or "PEM_LIB").replace(" ", "_")
        raise SslFilesError(f"{what}: {_CAUSES.get(reason, reason)}") from error


def _expiration(pem: bytes, label: str) -> datetime:
    """The end of the first certificate of a chain, or of any later one that ends before it."""
    try:
        ends = [read_certificate(der).not_after for der in certificates_of(pem.decode("utf-8", "replace"))]
    except ValueError as error:
        raise SslFilesError(f"{label}: {error}") from error
    if not ends:
        raise SslFilesError(f"{label}: there is no certificate in it")
    return min(ends)


def certificates_of(pem: str) -> Iterator[bytes]:
    """The certificates of a PEM text, in DER."""
    for part in pem.split(_CERTIFICATE_BEGIN)[1:]:
        body = part.partition(_CERTIFICATE_END)[0]
        yield ssl.PEM_cert_to_DER_cert(f"{_CERTIFICATE_BEGIN}{body}{_CERTIFICATE_END}\n")


def _pem_of_keystore(content: bytes, password: str | None, label: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, certificate, others = _load_pkcs12(content, password, label)
    if key is None or certificate is None:
        raise SslFilesError(f"{label}: there is no private key with a certificate in it")
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    # TLS 1.2 wants the chain in order, and PKCS#12 promises none.
    by_subject = {other.subject: other for other in others}
    while certificate is not None:
        parts.append(certificate.public_bytes(Encoding.PEM))
        certificate = by_subject.pop(certificate.issuer, None)
    return b"".join(parts)


def _trusted_of_keystore(content: bytes, password: str | None, label: Path) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    _, certificate, others = _load_pkcs12(content, password, str(label))
    found = others if certificate is None else [certificate, *others]
    if not found:
        raise SslFilesError(f"{label}: there is no certificate in it")
    return b"".join(one.public_bytes(Encoding.PEM) for one in found)


def _load_pkcs12(content: bytes, password: str | None, label: str) -> Any:
    # Loaded only for those who have such files: it is large.
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    try:
        return load_key_and_certificates(content, password.encode() if password is not None else None)
    except ValueError as error:
        raise SslFilesError(f"{label}: the password is wrong, or it is no PKCS#12 file") from error


def _choose_by_name(contexts: Mapping[str, ssl.SSLContext], refuse: bool) -> Callable[..., int | None]:
    def choose(sock: ServerSocket, name: str | None, _: ssl.SSLContext) -> int | None:
        if name is None:
            return None
        sock.server_name = name = name.lower()
        chosen = contexts.get(name) or contexts.get("*." + name.partition(".")[2])
        if chosen is not None:
            sock.context = chosen
        elif refuse:
            sock.name_refused = True
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        return None

    return choose
