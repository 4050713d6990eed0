"""Shows the gateway: real clients use an Apache Kafka through klamm, which adds TLS, SCRAM, ACLs, quotas and audit.

    scripts/gateway-demo [--folder DIR] [--once]

It starts a Kafka from its published jars, and klamm before it with the klamm.toml of this folder. Both run until
Ctrl-C, or with --once until the clients are done. The exit code is 1 if a client did not get the expected result.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))

from tests.peers import kafka_jars  # noqa: E402
from tests.peers.kafka_server import KafkaServer  # noqa: E402
from tests.peers.server import lasting_port  # noqa: E402

USERS = ("alice", "bob", "bulk")
TOPIC, GROUP = "orders", "billing"
BULK_BYTES = 50_000
BULK_REQUESTS = 30
KLAMM = [sys.executable, "-m", "klamm"]


def prepare(folder: Path, bootstrap: str, ports: tuple[int, int]) -> Path:
    """Write klamm's configuration for the Kafka at `bootstrap`, its certificates and its users. Return the
    configuration.
    """
    text = (HERE / "klamm.toml").read_text().replace("127.0.0.1:19092", bootstrap)
    text = text.replace(":9092", f":{ports[0]}").replace('"9093"', f'"{ports[1]}"')
    file = folder / "klamm.toml"
    file.write_text(text)
    subprocess.run([*KLAMM, "certs", str(folder / "tls")], check=True, stdout=subprocess.DEVNULL)
    for user in USERS:
        password = folder / "password"
        password.write_text(f"{user}-secret\n")
        subprocess.run([*KLAMM, "users", "add", "--password-file", password, folder / "users", user], check=True)
        password.unlink()
    return file


def require_programs() -> None:
    """End the process with a hint if Kafka cannot run here."""
    if shutil.which("java") is None:
        sys.exit("Kafka needs Java 17 or later")
    try:
        kafka_jars.folder()
    except FileNotFoundError as error:
        sys.exit(f"Kafka's jars are fetched by Maven, once: {error}")


def require_free(ports: tuple[int, int]) -> None:
    """End the process with a hint if another process has one of klamm's ports, before anything is started."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                sys.exit(f"port {port}: {error.strerror}; --free-ports takes others than 9092 and 9093")


@contextlib.contextmanager
def serving(file: Path) -> Iterator[str]:
    """Run klamm until the block ends, and yield the address for clients."""
    ready = file.parent / "ready.json"
    process = subprocess.Popen([*KLAMM, "serve", str(file), "--ready-file", str(ready), "--log-level", "ERROR"])
    try:
        until = time.monotonic() + 30
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > until:
                sys.exit("klamm does not start")
            time.sleep(0.05)
        found = re.search(r'^advertise = "(.+)"', file.read_text(), re.MULTILINE)
        assert found is not None
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def client_settings(folder: Path, bootstrap: str, user: str, password: str = "") -> dict[str, Any]:
    """Return the settings of a client of librdkafka."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": user,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(folder / "tls" / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password or f"{user}-secret",
        "log_level": 0,
        "log.connection.close": False,
    }


def write_client_properties(folder: Path, bootstrap: str) -> Path:
    """Write the settings for Kafka's own tools, as alice, and return the file."""
    file = folder / "client.properties"
    file.write_text(
        f"bootstrap.servers={bootstrap}\nsecurity.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={folder / 'tls' / 'ca.pem'}\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="alice-secret";\n'
    )
    return file


class Tour:
    """The steps of the demo. Each prints a client's attempt and its result."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self.failed = False

    def _settings(self, user: str, **more: Any) -> dict[str, Any]:
        return client_settings(self._folder, self._bootstrap, user) | more

    def _say(self, what: str, got: str, *, right: bool) -> None:
        self.failed |= not right
        print(f"{'ok' if right else 'WRONG':<6} {what}: {got}", flush=True)

    def run(self) -> None:
        """Run all steps."""
        self.alice_writes_and_reads()
        self.bob_may_not_write()
        self.a_wrong_password()
        self.bulk_is_throttled()

    def alice_writes_and_reads(self) -> None:
        """Write and read over TLS, after SCRAM, as an ACL allows."""
        self._create_topic()
        producer = Producer(self._settings("alice"))
        for number in range(3):
            producer.produce(TOPIC, f"order {number}".encode())
        left = producer.flush(30)
        consumer = Consumer(self._settings("alice", **{"group.id": GROUP, "auto.offset.reset": "earliest"}))
        consumer.subscribe([TOPIC])
        read: list[str] = []
        until = time.monotonic() + 30
        while len(read) < 3 and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                read.append((message.value() or b"").decode())
        consumer.close()
        self._say("alice writes and reads orders over TLS", ", ".join(read), right=not left and len(read) == 3)

    def _create_topic(self) -> None:
        admin = AdminClient(self._settings("alice"))
        try:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])[TOPIC].result(30)
        except KafkaException as error:
            # The topic exists if the folder was used before.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def bob_may_not_write(self) -> None:
        """Try a write that no ACL allows."""
        answer = self._produce(Producer(self._settings("bob")), 1, b"mine")
        self._say("bob writes to orders", answer, right=answer == "TOPIC_AUTHORIZATION_FAILED")

    def a_wrong_password(self) -> None:
        """Try a password that no account has."""
        failures: list[KafkaError] = []
        settings = client_settings(self._folder, self._bootstrap, "mallory", "guess")
        producer = Producer(settings | {"error_cb": failures.append})
        until = time.monotonic() + 20
        while time.monotonic() < until and not failures:
            producer.poll(0.05)
        got = failures[0].name() if failures else "nothing"
        self._say("mallory logs in", got, right=got == "_AUTHENTICATION")

    def bulk_is_throttled(self) -> None:
        """Send more than a quota allows."""
        throttled: list[Any] = []
        more = {"batch.num.messages": 1, "throttle_cb": throttled.append}
        answer = self._produce(Producer(self._settings("bulk", **more)), BULK_REQUESTS, bytes(BULK_BYTES))
        longest = max((event.throttle_time for event in throttled), default=0.0)
        what = f"bulk writes {BULK_REQUESTS * BULK_BYTES:,} bytes at 100,000 a second"
        self._say(what, f"{answer}, throttled for {longest:.1f} s", right=answer == "ok" and longest > 0)

    @staticmethod
    def _produce(producer: Producer, count: int, value: bytes) -> str:
        answers: list[str] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            answers.append("ok" if error is None else error.name())

        for _ in range(count):
            producer.produce(TOPIC, value, on_delivery=delivered)
        producer.flush(60)
        return ", ".join(sorted(set(answers))) or "nothing"


def main() -> int:
    """Run the demo. Return 0 if every client got the expected result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where all of it goes; default: a temporary folder, which stays")
    parser.add_argument("--once", action="store_true", help="end when the clients are done")
    parser.add_argument("--free-ports", action="store_true", help="instead of 9092 and 9093")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="klamm-gateway-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ports = (lasting_port(), lasting_port()) if options.free_ports else (9092, 9093)
    require_free(ports)
    require_programs()
    with KafkaServer(folder / "kafka") as kafka:
        file = prepare(folder, kafka.bootstrap, ports)
        subprocess.run([*KLAMM, "doctor", str(file)], check=True)
        with serving(file) as bootstrap:
            print(f"\nKafka at {kafka.bootstrap}, klamm before it at {bootstrap}\n", flush=True)
            tour = Tour(folder, bootstrap)
            tour.run()
            print("\nthe audit trail, the end of it:", flush=True)
            # Events are written within a second.
            time.sleep(1.5)
            subprocess.run([*KLAMM, "audit", "tail", str(file), "-n", "25"], check=True)
            properties = write_client_properties(folder, bootstrap)
            if not options.once:
                print(f"\n{properties} is for clients of your own; Ctrl-C ends Kafka and klamm")
                with contextlib.suppress(KeyboardInterrupt):
                    signal.pause()
    return 1 if tour.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
