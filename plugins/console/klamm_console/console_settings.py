"""`ConsoleSettings`: the table `[console]`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from klamm import setting
from klamm.config import parse_host_port


def _check_bind(text: str) -> str | None:
    try:
        host, _ = parse_host_port(text)
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if is_loopback:
        return None
    return f'must be a loopback address and a port, e.g. 127.0.0.1:8080, not "{text}"; other addresses need a proxy'


def _check_url(text: str) -> str | None:
    if text.startswith(("http://", "https://")) and not set("@?#").intersection(text):
        return None
    return "must be a URL without a user, a query and a fragment, e.g. http://127.0.0.1:8081"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """`[console]`."""

    bind: str = setting("127.0.0.1:8080", doc="Address to listen on: a loopback address and a port.", check=_check_bind)
    listener: str | None = setting(
        None,
        doc="Listener that users log in to, by SASL PLAIN or SCRAM. If unset: the first one with SASL, else the first."
        " If it has no authenticator, the console asks for its token.",
    )
    token: str | None = setting(
        None,
        doc="Token that opens the console if its listener has no authenticator. If unset, a random token, which the"
        " start message and the ready file show.",
        secret=True,
    )
    ca_file: Path | None = setting(
        None, doc="Certificates that the console trusts if its listener has TLS; if unset, those of the system."
    )
    server_name: str | None = setting(
        None, doc="Host name in the listener's certificate; if unset, the host that the listener advertises."
    )
    schema_registry: str | None = setting(
        None,
        doc="URL of the Schema Registry whose schemas decode records; if unset, the extension `schema_registry`"
        " if the server has it.",
        check=_check_url,
    )
    hosts: tuple[str, ...] = setting(
        (),
        doc="Further host names under which browsers reach the page, e.g. a proxy's; loopback names need no entry.",
    )
    session_minutes: int = setting(
        30, doc="Minutes without a request after which a user is logged out.", minimum=1, maximum=24 * 60
    )
