"""A good client while others fail to log in: `python -m bench.storm [--connections 2000] [--at-once 200]`.

A client that has logged in sends Metadata every few milliseconds: first alone, then during a storm of connections. In
the storm, connections send wrong passwords (PLAIN, SCRAM), or end after the TLS handshake. The program prints the
client's p99 in both cases, and their ratio.

All processes share one machine, but should behave like separate machines. So the clients share one core, the storm gets
only its idle time, and the good client has real-time priority. In `guesses`, the paced worker checks each password
(`suspect_check_percent`), which takes long. So this storm ends after `--seconds`.
"""

from __future__ import annotations

import argparse
import base64
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median

from bench.load import on_one_core
from klamm.sasl import ScramCredential, ScramMechanism
from klamm.testing import RawClient
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, free_port
from tests.tls_files import TlsFiles

PASSWORD = "correct horse"  # noqa: S105
EVERY_S = 0.002
STORMS = ("plain", "guesses", "scram", "tls")


class Client(RawClient):
    """A client that can log in as `alice` with PLAIN."""

    def log_in(self, password: str) -> int:
        """Log in, and return the error code of SaslAuthenticate."""
        self.call(SaslHandshakeRequest("PLAIN"), 1)
        return int(self.call(SaslAuthenticateRequest(f"\0alice\0{password}".encode()), 2).error_code)


def begin_scram(client: RawClient) -> None:
    """Send both messages of SCRAM, with a wrong proof."""
    client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    first = client.call(SaslAuthenticateRequest(b"n,,n=alice,r=abcdefgh"), 2).auth_bytes
    nonce = bytes(first).split(b",")[0]
    proof = base64.b64encode(os.urandom(32))
    client.call(SaslAuthenticateRequest(b"c=biws," + nonce + b",p=" + proof), 2)


def storm(kind: str, port: int, ca: str, connections: int, at_once: int, seconds: float) -> None:
    """Open up to `connections` failing connections, `at_once` side by side, within `seconds`. Print the number."""
    context = ssl.create_default_context(cafile=ca) if kind == "tls" else None
    numbers = count()
    ended: list[int] = []

    def work() -> None:
        while (number := next(numbers)) < connections and time.perf_counter() < end:
            ended.append(number)
            try:
                with Client((HOST, port), ssl_context=context) as client:
                    if kind == "plain":
                        client.log_in("wrong")
                    elif kind == "guesses":
                        client.log_in(f"wrong-{os.getpid()}-{number}")
                    elif kind == "scram":
                        begin_scram(client)
            except (ConnectionError, TimeoutError):
                continue

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.perf_counter() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(ended))


@contextmanager
def storm_process(kind: str, port: int, ca: Path, load: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """Run `storm` in a process of its own. The storm begins once the process has started up."""
    command = [sys.executable, "-m", "bench.storm", "--connections", str(load.connections)]
    command += ["--at-once", str(load.at_once), "--seconds", str(load.seconds), "--storm", kind, str(port), str(ca)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # Attackers have machines of their own. On this machine they get only idle time.
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        process.stdout.readline()
        process.stdin.write(b"\n")
        process.stdin.flush()
        yield process


def have_priority() -> None:
    """Give this process real-time priority, so that it never waits for a core that another process uses."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        print("without real-time priority, what is measured is also the client's wait for a processor", file=sys.stderr)


def p99_us(client: RawClient, until: float | subprocess.Popen[bytes]) -> float:
    """Return the 99th percentile of the client's latency. Requests go on until a time, or until a process ends."""
    taken = []
    request = MetadataRequest([])
    due = time.perf_counter()
    while (until.poll() is None) if isinstance(until, subprocess.Popen) else (due < until):
        started = time.perf_counter()
        client.call(request, 12)
        taken.append(time.perf_counter() - started)
        due += EVERY_S
        time.sleep(max(0.0, due - time.perf_counter()))
    taken.sort()
    return taken[int(len(taken) * 0.99)] * 1e6


@contextmanager
def server(folder: Path) -> Iterator[tuple[KlammServer, dict[str, int], TlsFiles]]:
    """Serve a listener for passwords and one for TLS."""
    files = TlsFiles(folder / "tls")
    verifiers = [
        ScramCredential.from_password(mechanism, PASSWORD, os.urandom(16)).to_text()
        for mechanism in (ScramMechanism.named("SCRAM-SHA-256"),)
    ]
    settings = {
        "listeners.default.authenticator": "sasl",
        "listeners.default.sasl.mechanisms": '["PLAIN", "SCRAM-SHA-256"]',
        "listeners.default.sasl.users.alice": verifiers[0],
    }
    ports = {"tls": free_port()}
    settings["listeners.tls.bind"] = f"{HOST}:{ports['tls']}"
    settings |= dict(text.split("=", 1) for text in files.server_settings("tls"))
    with KlammServer(folder / "server", settings) as running:
        ports["plain"] = ports["guesses"] = ports["scram"] = running.port
        yield running, ports, files


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.storm", description="a good client in a storm of bad ones")
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="the longest that a storm comes")
    parser.add_argument("--storm", nargs=3, metavar=("KIND", "PORT", "CA"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.storm:
        kind, port, ca = chosen.storm
        storm(kind, int(port), ca, chosen.connections, chosen.at_once, chosen.seconds)
        return
    have_priority()
    print("| storm of | connections/s | quiet p99, µs | in the storm, µs | ratio |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="klamm-storm-") as folder, server(Path(folder)) as (_, ports, files):
        for kind in STORMS:
            quiet, stormy, rates = [], [], []
            for _ in range(chosen.rounds):
                context = files.client_context() if kind == "tls" else None
                with on_one_core(), Client((HOST, ports[kind]), ssl_context=context) as client:
                    if kind != "tls" and client.log_in(PASSWORD):
                        raise RuntimeError("the good client cannot log in")
                    quiet.append(p99_us(client, time.perf_counter() + 2))
                    with storm_process(kind, ports[kind], files.ca, chosen) as process:
                        started = time.perf_counter()
                        stormy.append(p99_us(client, process))
                        assert process.stdout is not None
                        rates.append(int(process.stdout.read()) / (time.perf_counter() - started))
            cells = [f"{median(rates):,.0f}"]
            cells += [f"{median(v):,.0f} ({min(v):,.0f}–{max(v):,.0f})" for v in (quiet, stormy)]
            print(f"| {kind} | {' | '.join(cells)} | {median(stormy) / median(quiet):.2f} |", flush=True)


if __name__ == "__main__":
    main()
