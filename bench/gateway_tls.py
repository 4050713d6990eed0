"""The gateway with all protections on, for clients with TLS: `python -m bench.gateway_tls [--rounds 5] [--seconds 3]`.

`guarded-tls` is klamm before a Kafka with TLS, SASL SCRAM, ACLs, quotas and the audit. The same clients also use that
Kafka's own port, its TLS port without SASL, and another proxy without TLS, if `KLAMM_BENCH_PROXY` names its script (see
`bench.gateway`). The load comes from librdkafka as in `bench.tls`: records of 1 KiB, produced with acks=all and read
again. All endpoints take turns.

TLS costs the client more than the server, and both share the cores. So the table shows two numbers: the throughput, and
the server's processor time for each megabyte. The server is the proxy alone, or Kafka for Kafka's own ports. A ratio
above 1 means that `guarded-tls` is better.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.gateway import Gateway, ScriptedProxy
from bench.run import cell
from bench.tls import Endpoint, Result, kafka_with_tls, make_topic, measure, produce
from tests.peers.server import HOST, free_port
from tests.tls_files import TlsFiles

GUARDED: Final = "guarded-tls"
_USER, _PASSWORD = "bench", "bench-secret"
_MECHANISM: Final = "SCRAM-SHA-512"


class GuardedTls(Gateway):
    """The gateway with an authorizer, quotas, the audit, TLS and SCRAM, for one user."""

    def __init__(self, directory: Path, bootstrap: str, files: TlsFiles) -> None:
        super().__init__(directory, bootstrap, guarded=True)
        self.name = GUARDED
        users = directory / "users"
        self.settings |= {
            "listeners.default.transport": "ssl",
            "listeners.default.ssl.certificate": str(files.server.both),
            "listeners.default.authenticator": "sasl",
            "listeners.default.sasl.mechanisms": f'["{_MECHANISM}"]',
            "listeners.default.sasl.credential_stores": '["file"]',
            "listeners.default.sasl.file.path": str(users),
            "listeners.default.static.rules": f'["allow User:{_USER} ALL TOPIC:*", '
            f'"allow User:{_USER} ALL CLUSTER:*", "allow User:{_USER} ALL GROUP:*"]',
        }
        directory.mkdir(parents=True)
        password = directory / "password"
        password.write_text(f"{_PASSWORD}\n")
        add = [sys.executable, "-m", "klamm", "users", "add", "--password-file", str(password), str(users), _USER]
        subprocess.run(add, check=True, env=self.environment(), stdout=subprocess.DEVNULL)


@contextmanager
def endpoints(folder: Path, script: str | None) -> Iterator[list[Endpoint]]:
    """Yield the compared endpoints: Kafka, Kafka by TLS, `guarded-tls`, and the other proxy if there is one."""
    files = TlsFiles(folder / "tls")
    tls: dict[str, Any] = {"security.protocol": "SSL", "ssl.ca.location": str(files.ca)}
    sasl = {"sasl.mechanism": _MECHANISM, "sasl.username": _USER, "sasl.password": _PASSWORD}
    with ExitStack() as stack:
        port = free_port()
        kafka = stack.enter_context(kafka_with_tls(folder, files, port))
        guarded = stack.enter_context(GuardedTls(folder / GUARDED, kafka.bootstrap, files))
        found = [
            Endpoint("kafka", {"bootstrap.servers": kafka.bootstrap}, "read-kafka", kafka),
            Endpoint("kafka-tls", {"bootstrap.servers": f"{HOST}:{port}"} | tls, "read-kafka-tls", kafka),
            Endpoint(
                GUARDED,
                {"bootstrap.servers": guarded.bootstrap} | tls | sasl | {"security.protocol": "SASL_SSL"},
                f"read-{GUARDED}",
                guarded,
            ),
        ]
        if script:
            proxy = stack.enter_context(ScriptedProxy(folder / "proxy", script, kafka.bootstrap))
            found.append(Endpoint(proxy.name, {"bootstrap.servers": proxy.bootstrap}, "read-proxy", proxy))
        for endpoint in found:
            make_topic(endpoint, endpoint.topic)
            produce(endpoint, 1.0, endpoint.topic)
        yield found


def rows(what: str, results: dict[str, list[Result]]) -> Iterator[str]:
    """Yield the lines of the table for `produce` or `fetch`."""
    for unit, values in (
        ("MB/s", {name: [one.mb_per_s for one in rounds] for name, rounds in results.items()}),
        ("ms of CPU per MB", {name: [one.cpu_ms_per_mb for one in rounds] for name, rounds in results.items()}),
    ):
        medians = {name: median(rounds) for name, rounds in values.items()}
        ratios = [medians[GUARDED] / medians[name] for name in medians if name != GUARDED]
        if unit != "MB/s":
            ratios = [1 / ratio for ratio in ratios]
        cells = [*map(cell, values.values()), *(f"{ratio:.2f}" for ratio in ratios)]
        yield f"| {what} | {unit} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table; the module's docstring describes it."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_tls", description="the gateway with everything on")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round of each benchmark")
    chosen = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder,
        endpoints(Path(folder), os.environ.get("KLAMM_BENCH_PROXY")) as found,
    ):
        names = [endpoint.name for endpoint in found]
        columns = ["", "", *names, *(f"{GUARDED} : {name}" for name in names if name != GUARDED)]
        print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)
        for what in ("produce", "fetch"):
            results: dict[str, list[Result]] = {name: [] for name in names}
            for number in range(chosen.rounds):
                for endpoint in found if number % 2 == 0 else reversed(found):
                    results[endpoint.name].append(measure(what, endpoint, chosen.seconds))
            print("\n".join(rows(what, results)), flush=True)


if __name__ == "__main__":
    main()
