"""`SslOptions`: the keys of the transport `ssl`, with their meanings and values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from klamm import setting
from klamm.config import PER_BROKER
from klamm_ssl.principal_mapper import InvalidRuleError, SslPrincipalMapper


def _check_rules(rules: str) -> str | None:
    try:
        SslPrincipalMapper(rules)
    except InvalidRuleError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class SniSettings:
    """`[listeners.NAME.ssl.sni."HOST"]`: a certificate from the same sources as the listener's own."""

    certificate: Path | None = setting(None, doc="PEM file with the certificate, its chain and, optionally, its key.")
    chain: Path | None = setting(None, doc="PEM file with the rest of the chain.")
    private_key: Path | None = setting(None, doc="PEM file with the private key.", private=True)
    certificate_pem: str | None = setting(None, doc="The certificate and its chain as PEM text, instead of a file.")
    private_key_pem: str | None = setting(None, doc="The private key as PEM text, instead of a file.", secret=True)
    keystore: Path | None = setting(None, doc="PKCS#12 file with key, certificate and chain.", private=True)
    key_password_file: Path | None = setting(None, doc="File whose first line is the password.", private=True)
    key_password_env: str | None = setting(None, doc="Environment variable with the password.")


def _check_sni(sni: dict[str, SniSettings]) -> str | None:
    for host, files in sni.items():
        if sum(one is not None for one in (files.certificate, files.certificate_pem, files.keystore)) != 1:
            return f'"{host}" needs one of certificate, certificate_pem and keystore'
    return None


@dataclass(frozen=True, slots=True)
class SslOptions:
    """The keys of `[listeners.NAME.ssl]`."""

    certificate: Path | None = setting(
        None,
        doc="PEM file with the server's certificate, followed by its chain and, optionally, its key.",
        kafka="ssl.keystore.location",
        dynamic=PER_BROKER,
    )
    chain: Path | None = setting(None, doc="PEM file with the rest of the chain, if `certificate` has none.")
    private_key: Path | None = setting(
        None, doc="PEM file with the private key, if `certificate` has none.", private=True
    )
    certificate_pem: str | None = setting(
        None,
        doc="The certificate and its chain as PEM text, instead of a file.",
        kafka="ssl.keystore.certificate.chain",
    )
    private_key_pem: str | None = setting(
        None, doc="The private key as PEM text, instead of a file.", kafka="ssl.keystore.key", secret=True
    )
    keystore: Path | None = setting(
        None,
        doc="PKCS#12 file with key, certificate and chain.",
        kafka="ssl.keystore.location",
        private=True,
        dynamic=PER_BROKER,
    )
    key_password_file: Path | None = setting(
        None,
        doc="File whose first line is the password of the key or the keystore.",
        kafka="ssl.key.password",
        private=True,
    )
    key_password_env: str | None = setting(
        None, doc="Environment variable with the password of the key or the keystore.", kafka="ssl.key.password"
    )
    trust_store: Path | None = setting(
        None,
        doc="PEM or PKCS#12 file with the authorities of client certificates.",
        kafka="ssl.truststore.location",
        dynamic=PER_BROKER,
    )
    trust_store_pem: str | None = setting(
        None, doc="These authorities as PEM text, instead of a file.", kafka="ssl.truststore.certificates"
    )
    trust_store_password_file: Path | None = setting(
        None, doc="File whose first line is the password of a PKCS#12 trust store.", kafka="ssl.truststore.password"
    )
    trust_store_password_env: str | None = setting(
        None, doc="Environment variable with the password of a PKCS#12 trust store.", kafka="ssl.truststore.password"
    )
    revocation_lists: tuple[Path, ...] = setting(
        (), doc="PEM files with the CRLs of the authorities that issue client certificates."
    )
    revocation_check: str = setting(
        "chain",
        doc="Which certificates are checked for revocation: a client's certificate and all its authorities, or "
        "only the client's certificate.",
        choices=("chain", "leaf"),
    )
    client_auth: str = setting(
        "none",
        doc="Client certificates: not requested, requested, or required.",
        kafka="ssl.client.auth",
        choices=("none", "requested", "required"),
        dynamic=PER_BROKER,
    )
    min_version: str = setting(
        "TLSv1.2",
        doc="Oldest version of TLS.",
        kafka="ssl.enabled.protocols",
        choices=("TLSv1.2", "TLSv1.3"),
    )
    max_version: str = setting(
        "TLSv1.3",
        doc="Newest version of TLS.",
        kafka="ssl.enabled.protocols",
        choices=("TLSv1.2", "TLSv1.3"),
    )
    ciphers: str | None = setting(
        None,
        doc="Cipher suites of TLS 1.2 by OpenSSL's names, joined by colons; unset, Python's choice.",
        kafka="ssl.cipher.suites",
        dynamic=PER_BROKER,
    )
    principal_mapping_rules: str = setting(
        "DEFAULT",
        doc="Rules that map the subject of a client's certificate to the name of a principal.",
        kafka="ssl.principal.mapping.rules",
        check=_check_rules,
    )
    sni: dict[str, SniSettings] = setting(
        {},
        doc="Further certificates by the host name that a client asks for; `*.` stands for one label. Each has "
        "`certificate`, `chain`, `private_key`, `certificate_pem`, `private_key_pem`, `keystore`, "
        "`key_password_file` and `key_password_env`, like the listener itself.",
        check=_check_sni,
    )
    unknown_server_name: str = setting(
        "default",
        doc="Answer to a client that asks for a host that is not in `sni`: send the default certificate, or "
        "refuse the client.",
        choices=("default", "refuse"),
    )
    reload_interval_ms: int = setting(
        5_000, doc="Interval between checks of the files for new content; 0 checks them only at SIGHUP.", minimum=0
    )
    revoke_sessions: bool = setting(
        True,
        doc="Close a connection at once if the client's certificate has expired, was revoked, or has lost its "
        "trusted authority. false: keep the connection, as Apache Kafka does.",
    )
    expiry_warning_days: int = setting(
        30, doc="Log a warning once a day for certificates that expire within this time.", minimum=0
    )
