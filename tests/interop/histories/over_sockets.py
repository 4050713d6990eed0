"""A server in a process of its own, for clients that take turns: the workload of the simulation over real sockets."""

from __future__ import annotations

import select
import signal
import time
from random import Random
from typing import Final

from klamm import ErrorCode
from klamm.runtime.clock import SystemClock
from klamm.testing import RawClient
from klamm.testing.histories import Anomaly
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.peers.server import HOST, Server
from tests.peers.target import TARGET
from tests.unit.testing import simulated_groups as groups
from tests.unit.testing.simulated_admins import REGISTER
from tests.unit.testing.simulated_restarts import prepared, record

# Records of the simulation are old: Kafka would forget their producers.
SETTINGS: Final = dict(each.split("=", 1) for each in groups.SETTINGS) | {"log.message.timestamp.type": "LogAppendTime"}
_PAUSES: Final = 0.001
"""The share of the turns after which the process stands still for a while."""
_MAX_DISTURBANCES: Final = 4
"""How often a process is paused, stopped or killed within a history."""
_PAUSES_S: Final = (0.2, 1, groups.SESSION_MS / 1000 + 1)
_CUTS: Final = 0.003
_RESTARTS: Final = 0.002
_SIZE_BYTES: Final = 4
_SETTLED_S: Final = 1.0
"""The time after which a Kafka uses configs and topics that it has acknowledged."""


class _Client(RawClient):
    """A client that can be asked if its answer has come."""

    def has_frame(self) -> bool:
        """Return True if `receive` would return at once. Raises ConnectionError if the connection is closed."""
        while not self._holds_frame():
            if not select.select([self.socket], [], [], 0)[0]:
                return False
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("closed by the server")
            self._buffer += data
        return True

    def _holds_frame(self) -> bool:
        size_bytes = int.from_bytes(self._buffer[:_SIZE_BYTES], "big")
        return len(self._buffer) >= _SIZE_BYTES + size_bytes


class DrivenServer:
    """A running server, which `drive` disturbs: it is stopped, killed, and stands still for a while (SIGSTOP)."""

    def __init__(self, server: Server, seed: int) -> None:
        self.seed = seed
        self.clock = SystemClock()
        self.disturbances = 0
        self._server = server
        self._choose = Random(f"pauses {seed}")
        self._clients: list[_Client] = []

    def connect(self) -> _Client:
        """Return a new connection."""
        client = _Client((HOST, self._server.port))
        self._clients.append(client)
        return client

    def turn(self) -> bool:
        """Let the process stand still now and then; it goes on by itself."""
        if self._choose.random() < _PAUSES and self._may_disturb():
            self._server.process.send_signal(signal.SIGSTOP)
            time.sleep(self._choose.choice(_PAUSES_S))
            self._server.process.send_signal(signal.SIGCONT)
        return False

    def jump_ms(self, ms: float) -> None:
        """Wait for an answer for at most `ms` milliseconds."""
        self._clients = [each for each in self._clients if each.socket.fileno() >= 0]
        select.select([each.socket for each in self._clients], [], [], ms / 1000)

    def restart(self, *, kill: bool) -> None:
        """Stop or kill the server, and start it again. All connections end."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._may_disturb():
            (self._server.kill9 if kill else self._server.stop)()
            self._server.start()

    def _may_disturb(self) -> bool:
        if self.disturbances == _MAX_DISTURBANCES:
            return False
        self.disturbances += 1
        return True


def _find_coordinators(driven: DrivenServer) -> None:
    """Let the server create its internal topics, as clients of Kafka do."""
    client = driven.connect()
    for key_type, key in enumerate((groups.CLASSIC, "txn-1")):
        while True:
            (found,) = client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4).coordinators
            if found.error_code == 0:
                break
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, found.error_message
            time.sleep(0.1)
    client.close()


def anomalies_of(server: Server, seed: int, operations: int) -> tuple[list[Anomaly], int]:
    """Record one history of a new server, and check it; return also the number of disturbances."""
    driven = DrivenServer(server, seed)
    _find_coordinators(driven)
    work = prepared(driven)
    time.sleep(_SETTLED_S)
    try:
        record(driven, work, operations, _CUTS, _RESTARTS, wait_ms=0)
    finally:
        (server.directory / f"history-{seed}.jsonl").write_text(work.file.getvalue())
    found = work.anomalies()
    if TARGET != "klamm":
        # Apache Kafka acknowledges a change of a config before it describes it.
        found = [one for one in found if one.name != "not_linearizable" or REGISTER not in one.text]
    return found, driven.disturbances
