"""A Java application that reads one topic and writes another, for tests that kill the application."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from tests.interop.clients.java import TOPIC_COMMAND, run_tool
from tests.peers.server import Server

PARTITIONS = 3


class JavaApplication(ABC):
    """A child process that ends when its input ends. `output` is the topic that it writes."""

    def __init__(self, output: str, log: Path) -> None:
        self.output = output
        self._log = log
        self._process: subprocess.Popen[bytes]

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line, which is called at each start."""

    def start(self) -> None:
        command = self.command()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)

    def kill9(self) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, line: str) -> None:
        """Write a line to the application's input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def stop(self, timeout_s: float) -> None:
        self._process.communicate(timeout=timeout_s)
        assert self._process.returncode == 0, self.log()

    def log(self) -> str:
        """Return the text that the application has printed."""
        return self._log.read_text()


def create_topics(server: Server, *names: str) -> None:
    """Create topics with `PARTITIONS` partitions each."""
    for name in names:
        arguments = ["--topic", name, "--partitions", str(PARTITIONS), "--replication-factor", "1"]
        run_tool(TOPIC_COMMAND, "--bootstrap-server", server.bootstrap, "--create", *arguments)
