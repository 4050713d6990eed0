"""Settings of the authenticator `sasl`, of its mechanisms and of its credential stores."""

from __future__ import annotations

import importlib
import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from klamm import ProviderKind, setting
from klamm.config import ListenerSecurity
from klamm.sasl import ScramCredential
from klamm_sasl.kerberos_names import parse_rule


def _check_users(users: dict[str, str]) -> str | None:
    for user, text in users.items():
        for word in text.split() or [text]:
            try:
                ScramCredential.from_text(word)
            except ValueError as error:
                return f'the verifier of user "{user}" {error}'
    return None


def _check_function(text: str | None) -> str | None:
    if text is None:
        return None
    module, colon, name = text.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return f'must be "module:function", not "{text}"'
    return None


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The table `[listeners.NAME.sasl]`. The tables of mechanisms and credential stores are below it."""

    mechanisms: tuple[str, ...] = setting(
        doc="SASL mechanisms that clients may choose from.",
        kafka="sasl.enabled.mechanisms",
        check=lambda names: None if names else "must name at least one mechanism",
        parts=ProviderKind.SASL_MECHANISM,
    )
    credential_stores: tuple[str, ...] = setting(
        ("broker",),
        doc="Stores in which users are looked up, in this order; the first store that has a user decides.",
        kafka="sasl.server.callback.handler.class",
        parts=ProviderKind.CREDENTIAL_STORE,
    )
    users: dict[str, str] = setting(
        {},
        doc="Users that are looked up before any store: names and SCRAM verifiers as `klamm users hash` prints them.",
        check=_check_users,
        secret=True,
    )
    connections_max_reauth_ms: int = setting(
        0,
        doc="Time after which a session ends unless the client authenticates again; 0 is never (KIP-368).",
        kafka="connections.max.reauth.ms",
        minimum=0,
    )
    mechanism_connections_max_reauth_ms: dict[str, int] = setting(
        {},
        doc="Values of connections_max_reauth_ms for single mechanisms.",
        kafka="listener.name.{listener}.{mechanism}.connections.max.reauth.ms",
    )
    server_max_receive_size: int = setting(
        524_288,
        doc="Largest frame in bytes before a client is authenticated.",
        kafka="sasl.server.max.receive.size",
        minimum=1,
    )
    worker_threads: int = setting(
        1,
        doc="Threads for checks that take more than a millisecond, e.g. of PLAIN passwords.",
        minimum=1,
        maximum=64,
    )
    suspect_check_percent: int = setting(
        1,
        doc="Upper limit, in percent of one processor's time, for checks of passwords from addresses that have tried "
        "many wrong ones. 100 is no limit: the passwords are then checked like those from all other addresses.",
        minimum=1,
        maximum=100,
    )

    revoke_sessions: bool = setting(
        True,
        doc="Close a connection at once if the client's credential, token or signing key has changed or expired. "
        "false: keep it until the client authenticates again, as Apache Kafka does.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a problem if a mechanism has a re-authentication time but is not in `mechanisms`."""
        for name in self.mechanism_connections_max_reauth_ms:
            if name not in self.mechanisms:
                yield "mechanism_connections_max_reauth_ms", f'names "{name}", which is not among mechanisms'

    def warnings(self, listener: ListenerSecurity) -> Iterator[tuple[str, str]]:
        """Yield warnings about secrets in clear text, and about a mechanism that no client can use."""
        for name in ("PLAIN", "OAUTHBEARER"):
            if name in self.mechanisms and not listener.encrypted:
                yield (
                    "mechanisms",
                    f"{name} without TLS: anyone who can read the traffic gets the client's password or token",
                )
        if "EXTERNAL" in self.mechanisms and not listener.proves_principals:
            yield "mechanisms", "EXTERNAL: the transport does not verify principals, so no client can log in with it"


@dataclass(frozen=True, slots=True)
class FileStoreSettings:
    """`[listeners.NAME.sasl.file]`."""

    path: Path = setting(
        doc="File with a user and a SCRAM verifier in each line; `klamm users` writes it.", private=True
    )
    refresh_ms: int = setting(2000, doc="Time between two checks of the file for changes.", minimum=10)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a problem if the file cannot be read or has an invalid line."""
        from klamm_sasl.stores.users_file import parse_users, text_of

        try:
            parse_users(text_of(self.path.read_bytes()))
        except OSError as error:
            yield "path", f"{self.path}: {error.strerror}"
        except ValueError as error:
            yield "path", f"{self.path}: {error}"


@dataclass(frozen=True, slots=True)
class CallableStoreSettings:
    """The table `[listeners.NAME.sasl.callable]`. At least one of the two functions must be set."""

    password: str | None = setting(
        None,
        doc='"module:function"; function(user, password) returns True or False, or None for a user it does not know.',
        check=_check_function,
    )
    verifier: str | None = setting(
        None,
        doc='"module:function"; function(user, mechanism) returns a SCRAM verifier as text, or None.',
        check=_check_function,
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a problem if no function is set, or if one cannot be imported."""
        if self.password is None and self.verifier is None:
            yield "", "password or verifier must be set"
        for key, path in (("password", self.password), ("verifier", self.verifier)):
            try:
                load_function(path)
            except Exception as error:
                yield key, f'"{path}" cannot be imported: {error!r}'


def load_function(path: str | None) -> Callable[..., Any] | None:
    """Return the function that `module:function` names.

    Raises the errors of its import, and TypeError if it cannot be called.
    """
    if path is None:
        return None
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{path} is a {type(function).__name__}, which cannot be called")
    return function


_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


def check_url(url: str | None) -> str | None:
    """Return an error text for a URL of keys, or None if the URL is valid."""
    if url is None or url.startswith(("https://", "file://")):
        return None
    if not url.startswith("http://"):
        return f'must begin with https://, http:// or file://, not "{url}"'
    if not _is_loopback(url):
        return f'must begin with https://: over "{url}" an attacker can replace the keys and impersonate any client'
    return None


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_algorithms(names: tuple[str, ...]) -> str | None:
    unknown = [name for name in names if name not in _ALGORITHMS]
    if unknown:
        return f'"{unknown[0]}" is not an algorithm that signs with a key pair; known: {", ".join(_ALGORITHMS)}'
    return None if names else "must name at least one algorithm"


@dataclass(frozen=True, slots=True)
class OAuthBearerSettings:
    """`[listeners.NAME.sasl.OAUTHBEARER]`."""

    jwks_endpoint_url: str | None = setting(
        None,
        doc="URL of the JWK set whose keys sign tokens: https, file, or http of this machine.",
        kafka="sasl.oauthbearer.jwks.endpoint.url",
        check=check_url,
    )
    jwks_file: Path | None = setting(None, doc="File with a JWK set instead of the URL, checked every two seconds.")
    jwks_ca_file: Path | None = setting(
        None, doc="PEM file with the authorities that are trusted for the endpoint. Without it they are the system's."
    )
    jwks_endpoint_refresh_ms: int = setting(
        3_600_000,
        doc="Interval between fetches of the keys. An unknown key causes an additional fetch.",
        kafka="sasl.oauthbearer.jwks.endpoint.refresh.ms",
        minimum=1000,
    )
    jwks_endpoint_retry_backoff_ms: int = setting(
        100,
        doc="Wait after the first failed fetch; it doubles with each further failure.",
        kafka="sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        minimum=1,
    )
    jwks_endpoint_retry_backoff_max_ms: int = setting(
        10_000,
        doc="Longest wait after failed fetches.",
        kafka="sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        minimum=1,
    )
    jwks_missing_key_interval_ms: int = setting(
        10_000, doc="Shortest interval between fetches that unknown keys cause.", minimum=0
    )
    jwks_timeout_ms: int = setting(
        10_000,
        doc="Longest time that a fetch may take to connect or to read.",
        kafka="sasl.login.read.timeout.ms",
        minimum=1,
    )
    algorithms: tuple[str, ...] = setting(_ALGORITHMS, doc="Accepted signature algorithms.", check=_check_algorithms)
    expected_audience: tuple[str, ...] = setting(
        (),
        doc="One of them must be among a token's `aud`. Must be set, unless `allow_unverified_audience` is true.",
        kafka="sasl.oauthbearer.expected.audience",
    )
    expected_issuer: str | None = setting(
        None,
        doc="A token's `iss` must be this. Must be set, unless `allow_unverified_issuer` is true.",
        kafka="sasl.oauthbearer.expected.issuer",
    )
    allow_unverified_audience: bool = setting(
        False,
        doc="Without `expected_audience`, accept tokens that were issued for other services.",
        kafka="sasl.oauthbearer.allow.unverified.audience",
    )
    allow_unverified_issuer: bool = setting(
        False,
        doc="Without `expected_issuer`, accept tokens of any issuer whose key is in the key set.",
        kafka="sasl.oauthbearer.allow.unverified.issuer",
    )
    required_scope: tuple[str, ...] = setting(
        (), doc="Scopes that a token must have.", kafka="unsecuredValidatorRequiredScope"
    )
    scope_claim_name: str = setting(
        "scope", doc="The claim with a token's scopes.", kafka="sasl.oauthbearer.scope.claim.name"
    )
    sub_claim_name: str = setting(
        "sub", doc="The claim with the name of the principal.", kafka="sasl.oauthbearer.sub.claim.name"
    )
    clock_skew_seconds: int = setting(
        30,
        doc="Largest difference between the clock of the issuer of tokens and the server's.",
        kafka="sasl.oauthbearer.clock.skew.seconds",
        minimum=0,
    )
    unsecured_development_tokens: bool = setting(
        False, doc="Accept tokens without a signature: any client can be any user. Only for development."
    )

    def warnings(self, listener: ListenerSecurity) -> Iterator[tuple[str, str]]:
        """Yield warnings if the settings accept unsigned tokens, or tokens of any issuer or for any service."""
        if self.unsecured_development_tokens:
            yield "unsecured_development_tokens", "any client can be any user"
        if self.expected_issuer is None and self.allow_unverified_issuer:
            yield "allow_unverified_issuer", "a token of any issuer whose key is known is accepted"
        if not self.expected_audience and self.allow_unverified_audience:
            yield "allow_unverified_audience", "tokens that were issued for other services are accepted"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield problems: no source of keys or two sources, a missing audience or issuer, unusable files.

        Keys of an endpoint are not fetched for this.
        """
        sources = (self.jwks_endpoint_url, self.jwks_file)
        if None not in sources:
            yield "jwks_file", "jwks_endpoint_url is set as well"
        if sources == (None, None) and not self.unsecured_development_tokens:
            yield "", "jwks_endpoint_url or jwks_file must be set"
        if sources != (None, None):
            if not self.expected_audience and not self.allow_unverified_audience:
                yield (
                    "expected_audience",
                    "must be set, or allow_unverified_audience = true: tokens for any service are then accepted",
                )
            if self.expected_issuer is None and not self.allow_unverified_issuer:
                yield (
                    "expected_issuer",
                    "must be set, or allow_unverified_issuer = true: tokens of any issuer are then accepted",
                )
        if self.jwks_file is not None:
            from klamm_sasl.jwk_set import JwksError, parse_jwks

            try:
                parse_jwks(self.jwks_file.read_bytes())
            except OSError as error:
                yield "jwks_file", f"{self.jwks_file}: {error.strerror}"
            except JwksError as error:
                yield "jwks_file", f"{self.jwks_file}: {error}"
        if self.jwks_ca_file is not None:
            import ssl

            try:
                ssl.create_default_context(cafile=self.jwks_ca_file)
            except ssl.SSLError:
                yield "jwks_ca_file", f"{self.jwks_ca_file}: it contains no PEM certificate"
            except OSError as error:
                yield "jwks_ca_file", f"{self.jwks_ca_file}: {error.strerror}"


def _check_rules(rules: tuple[str, ...]) -> str | None:
    for rule in rules:
        try:
            parse_rule(rule)
        except ValueError as error:
            return str(error)
    return None if rules else "must have at least one rule"


_KEYTAB: Final = b"\x05"
"""The first byte of a keytab. It is the same in every version of the format."""


@dataclass(frozen=True, slots=True)
class GssapiSettings:
    """`[listeners.NAME.sasl.GSSAPI]`."""

    keytab: Path | None = setting(
        None,
        doc="File with the server's keys; unset, the system's (KRB5_KTNAME).",
        kafka="sasl.jaas.config",
        private=True,
    )
    principal: str | None = setting(
        None,
        doc="The server's principal, e.g. kafka/host.example.com@EXAMPLE.COM; unset, any principal in the keytab.",
        kafka="sasl.jaas.config",
    )
    default_realm: str | None = setting(None, doc="Realm of the rule DEFAULT; unset, the system's.")
    principal_to_local_rules: tuple[str, ...] = setting(
        ("DEFAULT",),
        doc="Rules that map a principal to a user's name; the first matching rule applies.",
        kafka="sasl.kerberos.principal.to.local.rules",
        check=_check_rules,
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a problem if the keytab cannot be read or is invalid.

        The start of the server checks that the keytab has a key for `principal`.
        """
        if self.keytab is not None:
            try:
                with self.keytab.open("rb") as file:
                    if file.read(len(_KEYTAB)) != _KEYTAB:
                        yield "keytab", f"{self.keytab}: is not a keytab"
            except OSError as error:
                yield "keytab", f"{self.keytab}: {error.strerror}"
