"""The command `klamm doctor`, which checks addresses, ports and folders, and the systems that listeners depend on."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from klamm.api.api_set import ApiSet, Finding
from klamm.api.context import Address, ListenerContext
from klamm.cli.serve import plan_of
from klamm.config.checks import host_to_connect
from klamm.config.plan import ListenerPlan, ServerPlan
from klamm.config.planner import ANY_HOST
from klamm.config.plugin_registry import PluginRegistry, load_factory
from klamm.logs.causes import failure
from klamm.logs.escaping import escape_control_characters
from klamm.runtime.platform.sockets import forbid_sharing
from klamm.server.listening import advertised
from klamm.shared.addresses import UNIX_PREFIX

_ANSWER_S: Final = 3.0
_TAKEN: Final = "stop what listens there, unless it is this server, or set an address and port that this user may have"


def folders_of(plan: ServerPlan) -> Iterator[tuple[str, Path]]:
    """Yield the folders in which the server itself writes, each with the setting that names it."""
    settings = plan.server
    if settings.data_dir is not None:
        yield "data_dir", settings.data_dir
    if settings.log_file is not None:
        yield "log_file", settings.log_file.parent


def folder_problem(folder: Path, *, tries: bool = False) -> str:
    """Return the reason why this user cannot write in a folder or make the folder; empty if there is none.

    With `tries`, a folder is made and removed there, or in the nearest folder above that exists.
    """
    existing = folder
    # Path.exists raises if a parent folder may not be entered.
    while not os.path.exists(existing) and existing != existing.parent:
        existing = existing.parent
    if not os.path.isdir(existing):
        return f"{existing} is not a directory"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} cannot be written by this user"
    if not tries:
        return ""
    # Imported here, because `klamm check` does not need it.
    from tempfile import TemporaryDirectory

    try:
        # Rights do not say everything: the file system may be full, or take no folders.
        with TemporaryDirectory(prefix=".klamm-doctor-", dir=existing):
            return ""
    except OSError as error:
        return f"nothing can be made in {existing}: {error.strerror or error}"


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """Print a line for each risk of the configuration and for each finding. Return 1 if a finding has a remedy, else 0.

    Raises ConfigError or PluginError.
    """
    plan = plan_of(options, plugins, files=True)
    for warning in plan.warnings:
        print(escape_control_characters(f"risk   {warning}"))
    wrong = False
    for finding in _findings(plan):
        wrong = wrong or bool(finding.remedy)
        print(escape_control_characters(_line(finding)), flush=True)
    return 1 if wrong else 0


def _line(finding: Finding) -> str:
    head = "wrong" if finding.remedy else "ok"
    return f"{head:<5}  {finding.subject}: {finding.text}" + (f"; {finding.remedy}" if finding.remedy else "")


def _findings(plan: ServerPlan) -> Iterator[Finding]:
    for key, folder in folders_of(plan):
        problem = folder_problem(folder, tries=True)
        remedy = "make it for the user of the server, or name another one"
        yield Finding(f"server.{key}", problem or f"{folder} can be used", remedy if problem else "")
    contexts = {listener.name: _context_of(listener) for listener in plan.listeners}
    for listener in plan.listeners:
        yield _address_of(contexts[listener.name], is_chosen=listener.advertise is not None)
    yield from _ports_that_meet(plan)
    yield from _ports_that_are_taken(plan)
    for name, part in plan.api_sets.items():
        api_set: ApiSet = part.build()
        users = [contexts[listener.name] for listener in plan.listeners if listener.api_set == name]
        try:
            yield from api_set.examine(users)
        except Exception as error:
            yield Finding(f"[{name}]", f"cannot be examined: {failure(error)}", f"{part.distribution} has to be fixed")


def _context_of(listener: ListenerPlan) -> ListenerContext:
    bound = Address(*listener.bind)
    parts = (listener.authenticator, listener.transport)
    security_protocol = "".join(getattr(load_factory(part.found), "security_protocol", "") for part in parts if part)
    return ListenerContext(
        listener.name, bound, advertised(listener, bound), security_protocol, transport=listener.transport.name
    )


def _address_of(context: ListenerContext, *, is_chosen: bool) -> Finding:
    """Return a finding about the address that clients of a listener get. Its name must resolve on this machine."""
    subject, address = f"listener {context.name}", context.advertised
    text = f"binds {context.bound}, clients are sent to {address} and use {context.security_protocol}"
    if address.host.startswith(UNIX_PREFIX):
        return Finding(subject, text)
    problem = resolution_problem(address.host)
    if problem:
        remedy = f"add {address.host} to the DNS that clients use, or set listeners.{context.name}.advertise"
        return Finding(subject, f"{text}, but {problem}", remedy)
    if context.bound.host in ANY_HOST and not is_chosen:
        text += f", but {address.host} is only the name that this machine has for itself"
        return Finding(subject, text, f"set listeners.{context.name}.advertise to what clients can connect to")
    return Finding(subject, text)


def resolution_problem(host: str) -> str:
    """Return the reason why a host name does not resolve on this machine; empty if it does."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return f"{host} does not resolve: {error}"
    return ""


def _ports_that_meet(plan: ServerPlan) -> Iterator[Finding]:
    """Yield findings about ports that two listeners would bind, including the further ports of handler sets."""
    seen: list[tuple[ListenerPlan, frozenset[int]]] = []
    for listener in plan.listeners:
        host, port = listener.bind
        more: Sequence[int] = _more_ports(plan.api_sets[listener.api_set].settings)
        ports = frozenset((port, *more)) - {0}
        if len(more) + 1 != len({port, *more}):
            yield Finding(
                f"listener {listener.name}",
                f"its own port {port} is among the ports that [{listener.api_set}] adds",
                f"move listeners.{listener.name}.bind out of that range",
            )
        for other, others in seen:
            both = sorted(ports & others)
            if both and (host == other.bind[0] or not ANY_HOST.isdisjoint((host, other.bind[0]))):
                yield Finding(
                    f"listener {listener.name}",
                    f"listener {other.name} has port {both[0]} too" + (f" and {len(both) - 1} more" * (len(both) > 1)),
                    "give each listener its own ports; for a handler set that adds ports, write one table for each "
                    "listener",
                )
        seen.append((listener, ports))


def _ports_that_are_taken(plan: ServerPlan) -> Iterator[Finding]:
    """Yield findings about ports that this server cannot bind now."""
    for listener in plan.listeners:
        host, port = listener.bind
        if host.startswith(UNIX_PREFIX):
            continue
        for each in {port, *_more_ports(plan.api_sets[listener.api_set].settings)} - {0}:
            problem = port_problem(host, each)
            subject = f"listener {listener.name}"
            if problem and answers_as_kafka(host, each):
                text = f"{Address(host, each)} is in use: a Kafka server listens there"
                yield Finding(subject, text, "stop it, unless it is this server")
            elif problem:
                yield Finding(subject, f"cannot bind {Address(host, each)} now: {problem}", _TAKEN)


def port_problem(host: str, port: int) -> str:
    """Return the reason why a port cannot be bound; empty if it can."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            forbid_sharing(sock)
            sock.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def answers_as_kafka(host: str, port: int) -> bool:
    """Return True if a server at this address answers an ApiVersions request, with or without TLS."""
    # Imported here, because they are needed only if a port is taken.
    import ssl

    from klamm.testing.raw_client import RawClient
    from klamm.wire.messages.api_versions import ApiVersionsRequest

    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    for context in (None, unverified):
        try:
            with RawClient((host_to_connect(host), port), timeout_s=_ANSWER_S, ssl_context=context) as client:
                correlation_id = client.send(ApiVersionsRequest(), 0)
                return client.receive_frame().startswith(correlation_id.to_bytes(4, "big"))
        except TimeoutError:
            return False
        except OSError:
            continue
    return False


def _more_ports(settings: Any) -> Sequence[int]:
    ports: Sequence[int] = getattr(settings, "more_ports", ())
    return ports
