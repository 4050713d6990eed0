"""`SslFiles`: builds `ssl.SSLContext`s from settings and the content of files.

All files are read first, and the contexts are built from their content. So a reload compares exactly the content that
is in use. OpenSSL reads keys only from files, so the content goes through files in memory if the system has them.

The transport builds contexts when the listener starts, and on the scheduler's thread when a file has changed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography import x509

from klamm.runtime import PLATFORM
from klamm_ssl.certificate import read_next_update, read_not_after
from klamm_ssl.options import SniSettings, SslOptions

_PEM: Final = b"-----BEGIN "
_CERTIFICATE: Final = "CERTIFICATE"
_REVOCATION_LIST: Final = "X509 CRL"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_CRL_CHECK: Final = {"leaf": ssl.VERIFY_CRL_CHECK_LEAF, "chain": ssl.VERIFY_CRL_CHECK_CHAIN}
_NOT_OF_CONTEXTS: Final = {"principal_mapping_rules", "reload_interval_ms", "revoke_sessions", "expiry_warning_days"}
DEFAULT_NAME: Final = "default"
TRUST_STORE_NAME: Final = "trust_store"
REVOCATION_LISTS_NAME: Final = "revocation_lists"
_RESERVED: Final = frozenset({DEFAULT_NAME, TRUST_STORE_NAME, REVOCATION_LISTS_NAME})


class SslFilesError(Exception):
    """Raised for certificates, keys or trust stores that cannot be used.

    The message names the file and the reason, and contains no secret. `key` is the setting, if a single one is wrong.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class ServerObject(ssl.SSLObject):
    """A TLS connection with the server name (SNI) that its client sent, and notes if the name is unknown or refused."""

    server_name = ""
    name_unknown = False
    name_refused = False


@dataclass(frozen=True, slots=True)
class Identity:
    """The source of a certificate and its key: paths, or PEM text."""

    certificate: Path | str
    chain: Path | None
    private_key: Path | str | None
    is_keystore: bool
    password: _Password
    prefix: str = ""
    """The prefix of the names of the settings: `sni.HOST.` for a certificate by name."""

    @property
    def key(self) -> str:
        """Return the setting that provides the certificate."""
        if self.is_keystore:
            return f"{self.prefix}keystore"
        return self.prefix + ("certificate" if isinstance(self.certificate, Path) else "certificate_pem")

    @property
    def key_of_private_key(self) -> str:
        """Return the setting that provides the private key."""
        if self.private_key is None:
            return self.key
        return self.prefix + ("private_key" if isinstance(self.private_key, Path) else "private_key_pem")

    @property
    def label(self) -> str:
        """The name of the source in error messages."""
        return str(self.certificate) if isinstance(self.certificate, Path) else "certificate_pem"


@dataclass(frozen=True, slots=True)
class _Password:
    file: Path | None
    variable: str | None
    variable_key: str = ""


class SslContexts(NamedTuple):
    """The default context, with the trust and the times of expiry.

    `expirations` has the times for the certificates (by server name), the trust store and the CRLs. `trust` has the
    trusted certificates and the revocation lists, in PEM.
    """

    context: ssl.SSLContext
    expirations: Mapping[str, datetime]
    trust: bytes


class SslFiles:
    """The content of the files that the settings name, at one moment.

    `digest` depends on the content of each file, and on the settings from which contexts are made. Raises SslFilesError
    for a file that cannot be read.
    """

    def __init__(self, settings: SslOptions, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = environment
        self._default = _identity(settings)
        self._by_host = {host.lower(): _identity(files, f"sni.{host}.") for host, files in settings.sni.items()}
        self._contents = {path: _read(path, key) for path, key in sorted(self._paths().items())}
        used = [getattr(settings, one.name) for one in fields(settings) if one.name not in _NOT_OF_CONTEXTS]
        digest = hashlib.sha256(repr(used).encode())
        for path, content in self._contents.items():
            digest.update(f"{path}\0{len(content)}\0".encode())
            digest.update(content)
        self.digest = digest.digest()

    def _paths(self) -> dict[Path, str]:
        """Return the paths of the files, with the settings that name them."""
        settings = self._settings
        named: list[tuple[Path | str | None, str]] = [
            (settings.trust_store, "trust_store"),
            (settings.trust_store_password_file, "trust_store_password_file"),
            *((path, "revocation_lists") for path in settings.revocation_lists),
        ]
        for identity in (self._default, *self._by_host.values()):
            named += [
                (identity.certificate, identity.key),
                (identity.chain, f"{identity.prefix}chain"),
                (identity.private_key, identity.key_of_private_key),
                (identity.password.file, f"{identity.prefix}key_password_file"),
            ]
        return {path: key for path, key in named if isinstance(path, Path)}

    def contexts(self) -> SslContexts:
        """Return the contexts for these files. Raises SslFilesError."""
        expirations: dict[str, datetime] = {}
        trust = self._trust(expirations)
        default, own_names = self._context(self._default, trust, DEFAULT_NAME, expirations)
        contexts = {}
        for host, identity in self._by_host.items():
            # The names in _RESERVED are labels of other files. A final dot, as in DNS, distinguishes a host of that
            # name.
            label = f"{host}." if host in _RESERVED else host
            contexts[host], _ = self._context(identity, trust, label, expirations)
        refuse = self._settings.unknown_server_name == "refuse"
        default.sni_callback = _choose_by_name(contexts, own_names, refuse)
        return SslContexts(default, expirations, trust)

    def _context(
        self, identity: Identity, trust: bytes, label: str, expirations: dict[str, datetime]
    ) -> tuple[ssl.SSLContext, frozenset[str]]:
        """Return the context of a certificate, and its host names if the setting `sni` is used.

        The time of expiry goes into `expirations` under the label.
        """
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslobject_class = ServerObject
        context.minimum_version = _VERSIONS[settings.min_version]
        context.maximum_version = _VERSIONS[settings.max_version]
        if context.minimum_version > context.maximum_version:
            raise SslFilesError(
                f"min_version {settings.min_version} is above max_version {settings.max_version}", "min_version"
            )
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        if settings.ciphers is not None:
            try:
                context.set_ciphers(settings.ciphers)
            except ssl.SSLError as error:
                raise SslFilesError(
                    f"ciphers: {settings.ciphers}: OpenSSL does not know any of these", "ciphers"
                ) from error
        context.verify_mode = _VERIFY[settings.client_auth]
        if trust:
            # As in Java, each certificate of a trust store is trusted, even if it is not a root.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if settings.revocation_lists:
                context.verify_flags |= _CRL_CHECK[settings.revocation_check]
            with _as_file(trust) as name:
                _loading(
                    "trust_store or revocation_lists",
                    "trust_store",
                    "it contains no usable certificate",
                    lambda: context.load_verify_locations(name),
                )
        elif settings.client_auth != "none":
            raise SslFilesError(
                f'client_auth = "{settings.client_auth}" needs trust_store or trust_store_pem', "client_auth"
            )
        pem, expirations[label] = self._load_identity(context, identity)
        return context, _host_names(pem) if settings.sni else frozenset()

    def _trust(self, expirations: dict[str, datetime]) -> bytes:
        settings = self._settings
        if settings.revocation_lists and settings.client_auth == "none":
            raise SslFilesError('revocation_lists need client_auth = "requested" or "required"', "revocation_lists")
        parts = []
        if settings.trust_store is not None:
            content = self._contents[settings.trust_store]
            if _PEM not in content:
                password = _Password(
                    settings.trust_store_password_file, settings.trust_store_password_env, "trust_store_password_env"
                )
                content = _trusted_of_keystore(content, self._password(password), settings.trust_store)
            parts.append(content)
        if settings.trust_store_pem is not None:
            parts.append(settings.trust_store_pem.encode())
        if not parts:
            if settings.revocation_lists:
                raise SslFilesError("revocation_lists need trust_store or trust_store_pem", "revocation_lists")
            return b""
        trusted = _readable_ends(b"\n".join(parts))
        if trusted:
            expirations[TRUST_STORE_NAME] = min(trusted)
        ends = []
        for path in settings.revocation_lists:
            content = self._contents[path]
            ends += _next_updates(content, str(path))
            parts.append(content)
        if ends:
            expirations[REVOCATION_LISTS_NAME] = min(ends)
        return b"\n".join(parts)

    def _load_identity(self, context: ssl.SSLContext, identity: Identity) -> tuple[bytes, datetime]:
        """Load a certificate and its key. Return the certificate with its chain in PEM, and the time of expiry."""
        password = self._password(identity.password)
        pem = self._content(identity.certificate)
        private_key = None if identity.private_key is None else self._content(identity.private_key)
        if identity.is_keystore:
            pem = _pem_of_keystore(pem, password, identity)
            password = None
        elif identity.chain is not None:
            pem = b"\n".join([pem, self._content(identity.chain)])

        # Check the certificate first, because OpenSSL's error does not say if the certificate or the key is wrong.
        end = _expiration(pem, identity)

        def ask_for_password() -> str:
            # Without this, OpenSSL would ask for the password at the terminal.
            if password is None:
                raise SslFilesError(
                    f"the private key of {identity.label} is encrypted: set key_password_file or _env",
                    identity.key_of_private_key,
                )
            return password

        # If the certificate's file contains a key too, the configured key takes precedence.
        key_file = contextlib.nullcontext() if private_key is None else _as_file(private_key)
        with _as_file(pem) as name, key_file as key_name:
            _loading(
                str(identity.private_key) if isinstance(identity.private_key, Path) else identity.label,
                identity.key_of_private_key,
                "it contains no private key, or the password is wrong",
                lambda: context.load_cert_chain(name, key_name, password=ask_for_password),
            )
        return pem, end

    def _content(self, source: Path | str) -> bytes:
        return self._contents[source] if isinstance(source, Path) else source.encode()

    def _password(self, password: _Password) -> str | None:
        if password.file is not None:
            return self._contents[password.file].decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
        if password.variable is not None:
            if password.variable not in self._environment:
                raise SslFilesError(f"the environment variable {password.variable} is not set", password.variable_key)
            return self._environment[password.variable]
        return None


def problems_of(settings: SslOptions, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a setting and a message for each unusable file, and for settings that contradict each other."""
    try:
        SslFiles(settings, environment).contexts()
    except SslFilesError as error:
        yield error.key, str(error)


def _identity(settings: SslOptions | SniSettings, prefix: str = "") -> Identity:
    sources = [settings.certificate, settings.certificate_pem, settings.keystore]
    given = [source for source in sources if source is not None]
    if len(given) != 1:
        raise SslFilesError(
            "one of certificate, certificate_pem and keystore must be set; `klamm certs` can make one",
            f"{prefix}certificate" if given else prefix.rstrip("."),
        )
    return Identity(
        given[0],
        settings.chain,
        settings.private_key if settings.private_key is not None else settings.private_key_pem,
        settings.keystore is not None,
        _Password(settings.key_password_file, settings.key_password_env, f"{prefix}key_password_env"),
        prefix,
    )


def _read(path: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SslFilesError(f"{path}: {error.strerror}", key) from error


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield the name of a file with this content for OpenSSL, in memory if the system has memory files."""
    if sys.platform == "linux" and PLATFORM.has_memory_files:
        with os.fdopen(os.memfd_create("klamm-ssl", os.MFD_CLOEXEC), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        # Only this user can read the directory.
        with tempfile.TemporaryDirectory(prefix="klamm-ssl-") as directory:
            path = Path(directory) / "pem"
            path.write_bytes(content)
            yield str(path)


_CAUSES: Final = {
    "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
    # OpenSSL's error if the key has another type than the certificate.
    "NO_CERTIFICATE_ASSIGNED": "the private key does not belong to the certificate",
    "BAD_DECRYPT": "the password is wrong",
    "NO_START_LINE": "it contains no PEM",
    "NO_CERTIFICATE_OR_CRL_FOUND": "it contains no certificate",
}


def _loading(what: str, key: str, without_reason: str, load: Callable[[], object]) -> None:
    """Call `load`, and turn OpenSSL's errors into SslFilesError.

    `without_reason` is the message if OpenSSL gives no reason.
    """
    try:
        load()
    except ssl.SSLError as error:
        # OpenSSL gives no reason if a file lacks a part.
        reason = (error.reason or "PEM_LIB").replace(" ", "_")
        cause = without_reason if reason == "PEM_LIB" else _CAUSES.get(reason, reason)
        raise SslFilesError(f"{what}: {cause}", key) from error


def _expiration(pem: bytes, identity: Identity) -> datetime:
    """Return the earliest time at which the certificate, or an authority in its chain, expires."""
    try:
        ends = [read_not_after(der) for der in certificates_of(pem.decode("utf-8", "replace"))]
    except ValueError as error:
        raise SslFilesError(f"{identity.label}: {error}", identity.key) from error
    if not ends:
        raise SslFilesError(f"{identity.label}: it contains no certificate", identity.key)
    return min(ends)


def _readable_ends(pem: bytes) -> list[datetime]:
    """Return the times at which trusted certificates expire.

    OpenSSL may accept a certificate whose expiry cannot be read. Then it is trusted, and has no time here.
    """
    ends: list[datetime] = []
    with contextlib.suppress(ValueError):
        ends.extend(read_not_after(der) for der in certificates_of(pem.decode("utf-8", "replace")))
    return ends


def certificates_of(pem: str) -> Iterator[bytes]:
    """Yield the certificates of a PEM text, in DER. Raises ValueError."""
    return _objects_of(pem, _CERTIFICATE)


def revocation_lists_of(pem: str) -> Iterator[bytes]:
    """Yield the revocation lists of a PEM text, in DER. Raises ValueError."""
    return _objects_of(pem, _REVOCATION_LIST)


def _objects_of(pem: str, kind: str) -> Iterator[bytes]:
    for part in pem.split(f"-----BEGIN {kind}-----")[1:]:
        yield base64.b64decode(part.partition(f"-----END {kind}-----")[0])


def _next_updates(pem: bytes, label: str) -> list[datetime]:
    """Return the times of the next updates of the revocation lists that have one."""
    try:
        updates = [read_next_update(der) for der in _objects_of(pem.decode("utf-8", "replace"), _REVOCATION_LIST)]
    except ValueError as error:
        raise SslFilesError(f"{label}: not a revocation list: {error}", "revocation_lists") from error
    if not updates:
        raise SslFilesError(f"{label}: it contains no PEM revocation list", "revocation_lists")
    return [update for update in updates if update is not None]


def _host_names(pem: bytes) -> frozenset[str]:
    """Return the DNS names of the first certificate of a chain, in lower case."""
    certificate = x509.load_der_x509_certificate(next(certificates_of(pem.decode("utf-8", "replace"))))
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))


def _pem_of_keystore(content: bytes, password: str | None, identity: Identity) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, certificate, others = _load_pkcs12(content, password, identity.label, identity.key)
    if key is None or certificate is None:
        raise SslFilesError(f"{identity.label}: it contains no private key with a certificate", identity.key)
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    # TLS 1.2 needs the chain in order, but PKCS#12 does not keep an order.
    by_subject = {other.subject: other for other in others}
    while certificate is not None:
        parts.append(certificate.public_bytes(Encoding.PEM))
        certificate = by_subject.pop(certificate.issuer, None)
    return b"".join(parts)


def _trusted_of_keystore(content: bytes, password: str | None, label: Path) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    _, certificate, others = _load_pkcs12(content, password, str(label), "trust_store")
    found = others if certificate is None else [certificate, *others]
    if not found:
        raise SslFilesError(f"{label}: it contains no certificate", "trust_store")
    return b"".join(one.public_bytes(Encoding.PEM) for one in found)


def _load_pkcs12(content: bytes, password: str | None, label: str, key: str) -> Any:
    # Imported here, because most servers have no such file.
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    try:
        return load_key_and_certificates(content, password.encode() if password is not None else None)
    except ValueError as error:
        raise SslFilesError(f"{label}: the password is wrong, or it is not a PKCS#12 file", key) from error


def _choose_by_name(
    contexts: Mapping[str, ssl.SSLContext], own_names: Collection[str], refuse: bool
) -> Callable[..., int | None]:
    """Return the callback that chooses a context by server name.

    A name in `own_names`, the names of the default certificate, is not unknown.
    """

    def choose(tls: ServerObject, name: str | None, _: ssl.SSLContext) -> int | None:
        if name is None:
            return None
        tls.server_name = name = name.lower()
        pattern = "*." + name.partition(".")[2]
        chosen = contexts.get(name) or contexts.get(pattern)
        if chosen is not None:
            tls.context = chosen
        elif refuse:
            tls.name_refused = True
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        else:
            tls.name_unknown = bool(contexts) and name not in own_names and pattern not in own_names
        return None

    return choose
