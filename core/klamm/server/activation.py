"""Listening sockets that a service manager has bound and passes to the server, as systemd does (`man sd_listen_fds`).

The sockets stay open while the server restarts. The system queues connections meanwhile, so no client is refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from typing import Final

from klamm.api.context import Address
from klamm.config.plan import ServerPlan
from klamm.server.listening import ListeningSocket, prepare
from klamm.server.parts import StartError
from klamm.shared.addresses import UNIX_PREFIX

_FIRST_DESCRIPTOR: Final = 3
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def passed_sockets(
    plan: ServerPlan, environment: MutableMapping[str, str] = os.environ
) -> Mapping[str, tuple[ListeningSocket, ...]]:
    """Return the sockets that were passed to this process, by listener, and remove the environment variables.

    The name of a socket (`FileDescriptorName=`) is the name of its listener. Raises StartError if no listener has the
    name of a socket, or if a listener gets too few or too many sockets.
    """
    pid, count, names = (environment.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()):
        return {}
    passed: dict[str, list[socket.socket]] = {}
    try:
        for number, name in zip(range(int(count)), names.split(":"), strict=True):
            passed.setdefault(name, []).append(socket.socket(fileno=_FIRST_DESCRIPTOR + number))
    except (OSError, ValueError) as error:
        raise StartError(f"LISTEN_FDS={count} with LISTEN_FDNAMES={names}: {error}") from error
    listeners = {listener.name: listener for listener in plan.listeners}
    found = {}
    for name, sockets in passed.items():
        listener = listeners.get(name)
        if listener is None:
            raise StartError(f'a passed socket is named "{name}", but the listeners are {", ".join(listeners)}')
        ports = 1 + len(plan.more_ports(listener.api_set))
        if len(sockets) != ports:
            raise StartError(f"listener {name}: {len(sockets)} sockets were passed, but it has {ports} ports")
        for each in sockets:
            # The service manager may have made the sockets inheritable.
            try:
                each.set_inheritable(False)
                prepare(each, listener.settings)
            except OSError as error:
                raise StartError(f"listener {name}: a passed socket cannot listen: {error.strerror}") from error
        found[name] = tuple(ListeningSocket(each, _bound(each)) for each in sockets)
    return found


def _bound(sock: socket.socket) -> Address:
    name = sock.getsockname()
    return Address(f"{UNIX_PREFIX}{name}", 0) if isinstance(name, str) else Address(name[0], name[1])
