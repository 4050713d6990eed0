"""A good client while others fail to come in: `python -m bench.storm [--connections 2000] [--at-once 200]`.

A client that is authenticated already asks for Metadata every few milliseconds, first alone, then while a storm of
connections comes with wrong passwords (PLAIN, SCRAM) or makes TLS handshakes and goes away. Prints its p99 in
each round and the ratio of the two. All run on one machine, as if they did not: clients share one of its cores, where
the storm gets what is left, and the good client never waits. Guesses are checked by the paced worker
(`suspect_check_percent`), so that a storm of them ends after `--seconds`.
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
    """Logs in as `alice` with PLAIN before anything else."""

    def log_in(self, password: str) -> int:
        """The error code of SaslAuthenticate."""
        self.call(SaslHandshakeRequest("PLAIN"), 1)
        return int(self.call(SaslAuthenticateRequest(f"\0alice\0{password}".encode()), 2).error_code)


def begin_scram(client: RawClient) -> None:
    """Two rounds of SCRAM with a wrong proof."""
    client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    first = client.call(SaslAuthenticateRequest(b"n,,n=alice,r=abcdefgh"), 2).auth_bytes
    nonce = bytes(first).split(b",")[0]
    proof = base64.b64encode(os.urandom(32))
    client.call(SaslAuthenticateRequest(b"c=biws," + nonce + b",p=" + proof), 2)


def storm(kind: str, port: int, ca: str, connections: int, at_once: int, seconds: float) -> None:
    """Come and fail that many times, so many side by side, or for so long. Prints how often."""
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
    """`storm` in a process of its own, let loose once it has started up."""
    command = [sys.executable, "-m", "bench.storm", "--connections", str(load.connections)]
    command += ["--at-once", str(load.at_once), "--seconds", str(load.seconds), "--storm", kind, str(port), str(ca)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # Attackers have machines of their own: here they get only what is left of this one.
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        process.stdout.readline()
        process.stdin.write(b"\n")
        process.stdin.flush()
        yield process


def have_priority() -> None:
    """Never wait for a core that another process uses."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        print("without real-time priority, what is measured is also the client's wait for a processor", file=sys.stderr)


def p99_us(client: RawClient, until: float | subprocess.Popen[bytes]) -> float:
    """The 99th percentile of its latency, until a time or the end of a process."""
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
    """A listener for passwords and one for TLS."""
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
