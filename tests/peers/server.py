"""`Server`: the base of the servers under test, a child process that is started, stopped, killed and started again."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a TCP port of the loopback address on which no process listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def lasting_port() -> int:
    """Return a free port that no outgoing connection gets, so that it stays free while its server is down."""
    first, _last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = random.randrange(10_000, int(first))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


class Server(ABC):
    """A Kafka server in a child process, with one data directory and one port for its whole life.

    `settings` have Kafka's broker keys. The end of the `with` block stops the server, and `stop()` requires exit code
    0.
    """

    name: str
    start_timeout_s: float
    stop_timeout_s: float = 30.0
    creates_topics_on_request: bool = True
    """True if the server has CreateTopics. Otherwise Metadata creates every topic that a request names."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, port: int | None = None) -> None:
        self.directory = directory
        self.settings = dict(settings or {})
        self.port = port or lasting_port()
        self.log_path = directory / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line. Called before each start."""

    @abstractmethod
    def answers(self) -> bool:
        """Return True if the started server is ready for clients."""

    def environment(self) -> dict[str, str] | None:
        """Return the environment of the child; None inherits that of this process."""
        return None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The child process. Raises RuntimeError if none was started."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def spawn(self) -> float:
        """Start the process without waiting. Return the monotonic time in seconds just before the start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with self.log_path.open("ab") as log:
            begin = time.monotonic()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self.environment()
            )
        return begin

    def start(self) -> None:
        """Start the server. Return once clients are served."""
        self.spawn()
        deadline = time.monotonic() + self.start_timeout_s
        while not self.answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill9()
                raise TimeoutError(f"{self.name} is not ready after {self.start_timeout_s} s:\n{self.log_tail()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Send SIGTERM and wait for the end. The exit code must be one of `clean_exit_codes`."""
        process = self.process
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(
                f"{self.name} ignored SIGTERM for {self.stop_timeout_s} s:\n{self.log_tail()}"
            ) from None
        assert code in self.clean_exit_codes, f"{self.name} ended with {code}:\n{self.log_tail()}"

    clean_exit_codes: tuple[int, ...] = (0,)

    def kill9(self) -> None:
        """Send SIGKILL, and reap the process."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Stop the server, and start it again on the same data directory and port."""
        self.stop()
        self.start()

    def rss_bytes(self) -> int:
        """Return the present resident memory in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"{self.name} has no resident memory: it ended")

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is not None:
            return
        if kind is None:
            self.stop()
        else:
            self.kill9()
