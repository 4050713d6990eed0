"""Settings of the authenticator `sasl` and of its credential stores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from klamm import ProviderKind, ScramCredential, setting


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
    """`[listeners.NAME.sasl]`. The tables of mechanisms and credential stores are below it."""

    mechanisms: tuple[str, ...] = setting(
        doc="SASL mechanisms that clients may choose from.",
        kafka="sasl.enabled.mechanisms",
        check=lambda names: None if names else "must name at least one mechanism",
        parts=ProviderKind.SASL_MECHANISM,
    )
    credential_stores: tuple[str, ...] = setting(
        ("broker",),
        doc="Where users are looked up, in this order; the first that knows a user counts.",
        kafka="sasl.server.callback.handler.class",
        parts=ProviderKind.CREDENTIAL_STORE,
    )
    users: dict[str, str] = setting(
        {},
        doc="Users that are known before any store: names and SCRAM verifiers as `klamm users hash` prints them.",
        check=_check_users,
    )
    connections_max_reauth_ms: int = setting(
        0,
        doc="A session ends after this time unless the client authenticates again; 0 never (KIP-368).",
        kafka="connections.max.reauth.ms",
        minimum=0,
    )
    mechanism_connections_max_reauth_ms: dict[str, int] = setting(
        {},
        doc="Other times than connections_max_reauth_ms for some mechanisms.",
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
        doc="Threads for checks that take more than a millisecond, e.g. passwords of PLAIN.",
        minimum=1,
        maximum=64,
    )


@dataclass(frozen=True, slots=True)
class FileStoreSettings:
    """`[listeners.NAME.sasl.file]`."""

    path: Path = setting(doc="File with a user and a SCRAM verifier in each line; `klamm users` writes it.")
    refresh_ms: int = setting(2000, doc="Time between two looks at whether the file has changed.", minimum=10)


@dataclass(frozen=True, slots=True)
class CallableStoreSettings:
    """`[listeners.NAME.sasl.callable]`. At least one of them is to be set."""

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
