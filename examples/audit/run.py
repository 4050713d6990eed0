"""Shows the audit: real clients and an attacker use a server, and the report must have the clients' counts.

    scripts/audit-demo [--requests 100000] [--folder DIR]

It serves klamm.toml of this folder. Clients of librdkafka and kafka-python use both listeners; some are denied, and
some are throttled. The attack of attack.py runs meanwhile, and `klamm audit detect --follow` finds it. Then the demo
stops the server, ships its spool, verifies the lake, writes the report and compares. The exit code is 1 if a number
differs, or if a stage of the attack was not found.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attack
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

if TYPE_CHECKING:
    from klamm_spark.report.model import Report

HERE = Path(__file__).resolve().parent
USERS = {name: f"{name}-secret" for name in ("admin", "alice", "bob", "bulk", "mallory")} | {
    attack.ACCOUNT: attack.PASSWORD
}
RULES = (
    ("User:*", AclOperation.DESCRIBE, ResourceType.TOPIC, "orders"),
    ("User:*", AclOperation.DESCRIBE, ResourceType.TOPIC, "payroll"),
    ("User:*", AclOperation.WRITE, ResourceType.TOPIC, "orders"),
    ("User:alice", AclOperation.WRITE, ResourceType.TOPIC, "payroll"),
    (f"User:{attack.ACCOUNT}", AclOperation.ALTER, ResourceType.BROKER, "kafka-cluster"),
)
"""The ACLs of the listener `secure`."""
STAGES = ("password_spraying", "success_after_failures", "self_grant", "grant_then_read")
"""The detections that find the attack."""
MAX_LATENCY_S = 30
BULK_REQUESTS = 300
BULK_BYTES = 5_000
PAYROLL_BYTES = 3_000
FORGOTTEN_PASSWORDS = 2
IN_FLIGHT = 1_000
QUIET = {"log_level": 0, "log.connection.close": False}
KLAMM = [sys.executable, "-m", "klamm"]
COMPARED = ("produce requests", "ok", "denied", "throttled", "authentication failures")


class Client:
    """A producer that sends one message in a request, and counts its responses and the throttled ones."""

    def __init__(self, listener: str, bootstrap: str, user: str | None, number: int) -> None:
        self.listener = listener
        self.answers: Counter[str] = Counter()
        self.throttled = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"{user or 'anonymous'}-{number}",
                "batch.num.messages": 1,
                "linger.ms": 0,
                "retries": 0,
                "throttle_cb": self._on_throttle,
                **QUIET,
                **(credentials(user, f"{user}-secret") if user else {}),
            }
        )

    def produce(self, topic: str, requests: int, size: int) -> None:
        """Send this many requests, and wait until all are answered."""
        for _ in range(requests):
            while len(self._producer) >= IN_FLIGHT:
                self._producer.poll(0.01)
            self._producer.produce(topic, bytes(size), on_delivery=self._on_delivery)
        while self._producer.flush(10):
            pass

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self.answers["ok" if error is None else error.name()] += 1

    def _on_throttle(self, event: Any) -> None:
        self.throttled += event.throttle_time > 0


class DeniedClient:
    """A client like `Client`, but with kafka-python.

    After one denied message, librdkafka would fail all waiting messages of the topic.
    """

    def __init__(self, listener: str, bootstrap: str, user: str, number: int) -> None:
        self.listener = listener
        self.answers: Counter[str] = Counter()
        self.throttled = 0
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=f"{user}-{number}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=user,
            sasl_plain_password=f"{user}-secret",
            acks=1,
            retries=0,
            batch_size=0,
            linger_ms=0,
            enable_idempotence=False,
        )

    def produce(self, topic: str, requests: int, size: int) -> None:
        """Send this many records to one partition, one in a request, and wait until all are answered."""
        sent = [self._producer.send(topic, bytes(size), partition=0) for _ in range(requests)]
        self._producer.flush(60)
        for future in sent:
            error = future.exception if future.is_done else KafkaTimeoutError()
            name = "TOPIC_AUTHORIZATION_FAILED" if isinstance(error, TopicAuthorizationFailedError) else repr(error)
            self.answers["ok" if error is None else name] += 1
        self._producer.close(10)


def credentials(user: str, password: str) -> dict[str, str]:
    """Return the credentials for SASL PLAIN."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def forget_password(bootstrap: str, number: int) -> int:
    """Let bob log in with a wrong password, and return the number of failures that the client saw."""
    failures: list[KafkaError] = []
    settings = {"bootstrap.servers": bootstrap, "client.id": f"bob-{number}", "reconnect.backoff.ms": 60_000}
    settings |= QUIET | {"reconnect.backoff.max.ms": 60_000, "error_cb": failures.append}
    producer = Producer(settings | credentials("bob", f"forgotten-{number}"))
    until = time.monotonic() + 20
    while time.monotonic() < until and not failures:
        producer.poll(0.05)
    return sum(error.code() == KafkaError._AUTHENTICATION for error in failures)


def prepare(listeners: dict[str, str]) -> None:
    """Create the topics and the ACLs."""
    anyone = AdminClient({"bootstrap.servers": listeners["plain"], "client.id": "admin", **QUIET})
    topics = [NewTopic(name, num_partitions=4, replication_factor=1) for name in ("orders", "payroll")]
    for done in anyone.create_topics(topics).values():
        done.result(30)
    settings = credentials("admin", USERS["admin"]) | QUIET
    admin = AdminClient({"bootstrap.servers": listeners["secure"], "client.id": "admin", **settings})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rules = [AclBinding(kind, name, literal, who, "*", what, allow) for who, what, kind, name in RULES]
    for done in admin.create_acls(rules).values():
        done.result(30)


def jobs_of(listeners: dict[str, str], requests: int) -> list[tuple[Client | DeniedClient, str, int, int]]:
    """Return the clients, each with its topic, its number of requests and the size of a record."""
    denied = requests // 50
    share = (requests - denied - BULK_REQUESTS) // 5
    rest = requests - denied - BULK_REQUESTS - 4 * share
    return [
        (Client("plain", listeners["plain"], None, 1), "orders", share, 100),
        (Client("plain", listeners["plain"], None, 2), "orders", share, 100),
        (Client("secure", listeners["secure"], "alice", 1), "orders", share, 100),
        (Client("secure", listeners["secure"], "alice", 2), "payroll", share, PAYROLL_BYTES),
        (Client("secure", listeners["secure"], "bob", 1), "orders", rest, 100),
        (Client("secure", listeners["secure"], "bulk", 1), "orders", BULK_REQUESTS, BULK_BYTES),
        (DeniedClient("secure", listeners["secure"], "mallory", 1), "payroll", denied, 100),
    ]


def drive(listeners: dict[str, str], requests: int) -> tuple[dict[str, Counter[str]], int, float]:
    """Run all clients and the attack. Return their counts, the number of producing clients, and the seconds.

    The counts are by listener, with the names that the report uses.
    """
    prepare(listeners)
    jobs = jobs_of(listeners, requests)
    began = time.monotonic()
    threads = [threading.Thread(target=client.produce, args=job) for client, *job in jobs]
    for thread in threads:
        thread.start()
    failures = sum(forget_password(listeners["secure"], number) for number in range(FORGOTTEN_PASSWORDS))
    host, port = listeners["secure"].rsplit(":", 1)
    found = attack.run((host, int(port)))
    failures += found.failed_logins
    print(f"the attacker tried {found.failed_logins + 1} passwords and read {found.stolen_bytes:,} bytes")
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - began
    counted: dict[str, Counter[str]] = {name: Counter() for name in listeners}
    for client, *_ in jobs:
        here = counted[client.listener]
        here["produce requests"] += client.answers.total()
        here["ok"] += client.answers["ok"] - client.throttled
        here["denied"] += client.answers["TOPIC_AUTHORIZATION_FAILED"]
        here["throttled"] += client.throttled
    counted["secure"]["authentication failures"] = failures
    return counted, len(jobs), took_s


def reported(report: Report) -> dict[str, Counter[str]]:
    """Return the counts from the report's tables, in the form of the clients' counts."""
    found: dict[str, Counter[str]] = {}
    for row in rows_of(report, "apis"):
        if row["api name"] == "Produce":
            names = {"requests": "produce requests"}
            counts = {names.get(name, name): row[name] for name in ("requests", "ok", "denied", "throttled")}
            found[row["listener"]] = Counter(counts)
    for row in rows_of(report, "listeners"):
        found[row["listener"]]["authentication failures"] = row["authentication failures"]
    return found


def rows_of(report: Report, key: str) -> list[dict[str, Any]]:
    """Return the rows of a table. The keys are the columns' headings."""
    table = report.tables[key]
    return [dict(zip((column.title for column in table.columns), row, strict=True)) for row in table.rows]


def consistent(report: Report, counted: dict[str, Counter[str]]) -> bool:
    """Return True if the totals at the head of the report, its denials and its throttled principals agree too."""
    wanted = sum(counted.values(), Counter())
    denials = sum(row["requests"] for row in rows_of(report, "denials") if row["api name"] == "Produce")
    throttled = sum(row["requests"] for row in rows_of(report, "throttled") if row["api name"] == "Produce")
    return (
        report.totals["authentication failures"] == wanted["authentication failures"]
        and report.totals["denied"] == sum(row["denied"] for row in rows_of(report, "listeners"))
        and denials == wanted["denied"]
        and throttled == wanted["throttled"]
    )


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Start klamm, and return its process and the addresses of its listeners once they answer."""
    shutil.copy(HERE / "klamm.toml", folder)
    for user, secret in USERS.items():
        password = folder / "password"
        password.write_text(f"{secret}\n")
        subprocess.run([*KLAMM, "users", "add", "--password-file", password, folder / "users", user], check=True)
        password.unlink()
    ready = folder / "ready.json"
    command = [*KLAMM, "serve", str(folder / "klamm.toml"), "--ready-file", str(ready), "--log-level", "ERROR"]
    process = subprocess.Popen(command)
    until = time.monotonic() + 30
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            sys.exit("klamm does not start")
        time.sleep(0.05)
    return process, json.loads(ready.read_text())["listeners"]


def detected(path: Path) -> bool:
    """Wait for the findings of all stages. Return True if each came in time after the last event of its stage."""
    until = time.monotonic() + MAX_LATENCY_S
    latencies: dict[str, float] = {}
    while time.monotonic() < until and not latencies.keys() >= set(STAGES):
        time.sleep(0.2)
        for line in path.read_text().splitlines() if path.exists() else ():
            finding = json.loads(line)
            about = finding["finding_info"]
            latencies[finding["metadata"]["event_code"]] = (finding["time"] - about["last_seen_time"]) / 1000
    print("seconds from the last event to the finding:")
    for stage in STAGES:
        latency = latencies.get(stage)
        print(f"  {stage:26}" + ("not found" if latency is None else f"{latency:9.2f}"))
    return all(latencies.get(stage, MAX_LATENCY_S) < MAX_LATENCY_S for stage in STAGES)


def compare(counted: dict[str, Counter[str]], found: dict[str, Counter[str]]) -> bool:
    """Print both counts side by side. Return True if they are equal."""
    equal = True
    print(f"\n{'':34}{'clients':>12}{'report':>12}")
    for listener, counts in counted.items():
        for name in COMPARED:
            same = counts[name] == found[listener][name]
            equal &= same
            mark = "" if same else "  differs"
            print(f"{listener:8}{name:26}{counts[name]:>12,}{found[listener][name]:>12,}{mark}")
    return equal


def main() -> int:
    """Run the demo. Return 0 if the report has the clients' counts, the lake is sound, and each stage was found in
    time.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="produce requests in all")
    parser.add_argument("--folder", type=Path, help="where all of it goes; default: a temporary folder, which stays")
    parser.add_argument("--no-browser", action="store_true", help="do not open the report")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="klamm-audit-"))
    folder.mkdir(parents=True, exist_ok=True)

    server, listeners = serve(folder)
    detect = subprocess.Popen([*KLAMM, "audit", "detect", str(folder / "klamm.toml"), "--follow"])
    try:
        counted, clients, took_s = drive(listeners, options.requests)
        in_time = detected(folder / "findings.jsonl")
    finally:
        for process in (detect, server):
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    print(f"{options.requests:,} requests of {clients} clients, and an attack, in {took_s:.1f} s")

    from klamm_spark.cli import say
    from klamm_spark.lake import ship, verify
    from klamm_spark.lake.layout import Lake
    from klamm_spark.report import html as report_html
    from klamm_spark.report import text as report_text
    from klamm_spark.report.command import build
    from klamm_spark.settings.spark import read_pipeline

    pipeline = read_pipeline(folder / "klamm.toml", {})
    ship.run(None, pipeline, once=True, say=say)
    sound = verify.run(None, pipeline, say=print) == 0
    report = build(Lake.of(pipeline.settings))
    report_text.show(report)
    page = folder / "report.html"
    page.write_text(report_html.render(report), encoding="utf-8")
    print(f"written: {page}")
    equal = compare(counted, reported(report)) and consistent(report, counted)
    print("\nthe report says what the clients counted" if equal else "\nthe report and the clients differ")
    if not options.no_browser:
        webbrowser.open(page.as_uri())
    return 0 if equal and sound and in_time else 1


if __name__ == "__main__":
    sys.exit(main())
