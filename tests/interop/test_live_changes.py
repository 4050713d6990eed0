"""Changes of a running server while real clients produce and consume.

Each record is acknowledged and read once, and no client gets an error.
"""

from __future__ import annotations

import os
import signal
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from klamm.testing import RawClient
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, lasting_port
from tests.peers.target import TARGET
from tests.tls_files import TlsFiles
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.skipif(TARGET != "klamm", reason="looks into what only klamm promises"),
]
IN_FLIGHT = 200
RECORDS_A_CHANGE = 50
RULES = '"allow User:* ALL cluster", "allow User:* ALL group:*", "allow User:* ALL transactional_id:*"'


class Stream:
    """A producer with acks=all and idempotence, and a consumer in a group, on their own topic."""

    def __init__(self, topic: str, settings: dict[str, Any]) -> None:
        self.errors: list[str] = []
        self.acknowledged = 0
        self.read: list[int] = []
        self._sent = 0
        self._topic = topic
        common = {**settings, "error_cb": lambda error: self.errors.append(str(error))}
        admin = AdminClient(common)
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
        self._producer = Producer({**common, "enable.idempotence": True, "acks": "all", "linger.ms": 2})
        group = {"group.id": topic, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**common, **group})
        self._consumer.subscribe([topic])
        self._producing, self._consuming = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        while not self._producing.is_set():
            self._producer.poll(0.005)
            for _ in range(min(10, IN_FLIGHT - (self._sent - self.acknowledged))):
                self._producer.produce(self._topic, str(self._sent), on_delivery=self._delivered)
                self._sent += 1

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(f"not delivered: {error}")

    def _consume(self) -> None:
        while not self._consuming.is_set():
            for message in self._consumer.consume(500, 0.05):
                error, value = message.error(), message.value()
                if error is None and value is not None:
                    self.read.append(int(value))
                else:
                    self.errors.append(f"not read: {error}")

    def go_on(self) -> None:
        """Wait until further records have been acknowledged and read."""
        acknowledged, read = self.acknowledged + RECORDS_A_CHANGE, len(self.read) + RECORDS_A_CHANGE
        wait_until(
            lambda: self.errors or (self.acknowledged >= acknowledged and len(self.read) >= read),
            f"{self._topic}: {self.acknowledged} acknowledged, {len(self.read)} read",
        )
        assert not self.errors

    def end(self) -> None:
        """End the clients, and check that each record was acknowledged and read once."""
        self._producing.set()
        self._threads[0].join()
        assert self._producer.flush(120) == 0
        wait_until(lambda: len(self.read) >= self._sent, f"{self._topic}: {len(self.read)} of {self._sent} are read")
        assert self.errors == []
        assert self.acknowledged == self._sent
        assert Counter(self.read) == Counter(range(self._sent))

    def close(self) -> None:
        """End the threads and the clients."""
        self._producing.set()
        self._consuming.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()
        # The client ends when nothing refers to it.
        del self._producer


class LiveServer(KlammServer):
    """A server with a configuration file. The changes change `values`, which the file contains."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.tls = TlsFiles(directory / "tls")
        self.tls_port = lasting_port()
        self.more_port = lasting_port()
        self.server: dict[str, str] = {}
        self.plain: dict[str, str] = {}
        self.tables = ""
        self.rules = RULES + ', "allow User:* ALL topic:*"'
        self.super_users = '"User:ANONYMOUS"'
        self.more: dict[str, str] = {}
        self.reloads = 0
        self.write()

    @property
    def file(self) -> Path:
        return self.directory / "klamm.toml"

    def write(self) -> None:
        """Write the file in one step."""
        more = "".join(f"[listeners.{name}]\n{text}" for name, text in self.more.items())
        server = "".join(f"{key} = {value}\n" for key, value in self.server.items())
        plain = "".join(f"{key} = {value}\n" for key, value in self.plain.items())
        text = f"""
[server]
{server}
[listeners.plain]
bind = "{HOST}:{self.port}"
authorizer = "static"
{plain}
[listeners.plain.static]
rules = [{self.rules}]
[listeners.secure]
bind = "{HOST}:{self.tls_port}"
authorizer = "acl"
transport = "ssl"
[listeners.secure.acl]
super_users = [{self.super_users}]
[listeners.secure.ssl]
certificate = "{self.tls.server.certificate}"
private_key = "{self.tls.server.key}"
reload_interval_ms = 0
{more}{self.tables}"""
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(self.file)

    def command(self) -> list[str]:
        command = super().command()
        position = command.index("serve") + 1
        return [*command[:position], str(self.file), *command[position:]]

    def reload(self) -> None:
        """Reload the file and wait until every change is in effect."""
        self.write()
        self.reloads += 1
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.log_path.read_text().count("reload: done") >= self.reloads, self.log_tail())
        log = self.log_path.read_text()
        assert "nothing changed" not in log
        assert "next start" not in log

    def admin(self) -> AdminClient:
        """Return an admin client, which ends when nothing refers to it."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    @property
    def secure(self) -> dict[str, Any]:
        """Return the settings of a client of the TLS listener."""
        return {
            "bootstrap.servers": f"localhost:{self.tls_port}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.tls.ca),
        }

    def alter(self, kind: ResourceType, name: str, **values: str) -> None:
        """Change configs. An underscore in a keyword stands for a dot."""
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(60)


Change = Callable[[LiveServer], None]
CHANGES: list[Change] = []


def change(function: Change) -> Change:
    """Register a change of the running server. Changes run in the order of the module."""
    CHANGES.append(function)
    return function


@contextmanager
def stream(topic: str, settings: dict[str, Any]) -> Iterator[Stream]:
    """Produce and consume during the block. At its end each record was acknowledged and read once."""
    made = Stream(topic, settings)
    try:
        made.go_on()
        yield made
        made.end()
    finally:
        made.close()


def use(server: LiveServer, topic: str) -> None:
    """Produce and consume for a while through the added listener."""
    with stream(topic, {"bootstrap.servers": f"{HOST}:{server.more_port}"}) as made:
        made.go_on()


@change
def the_log_level(server: LiveServer) -> None:
    server.server["log_level"] = '"INFO"'
    server.reload()


@change
def super_users(server: LiveServer) -> None:
    server.super_users += ', "User:root"'
    server.reload()


@change
def static_rules(server: LiveServer) -> None:
    server.rules = RULES + ', "allow User:* WRITE topic:plain*", "allow User:* READ topic:plain*"'
    server.reload()


@change
def static_rules_back(server: LiveServer) -> None:
    server.rules = RULES + ', "allow User:* ALL topic:*"'
    server.reload()


@change
def limits_of_connections(server: LiveServer) -> None:
    server.tables += "[connection_quota]\nmax_connections_per_ip = 500\n"
    server.reload()


@change
def rates_of_connections(server: LiveServer) -> None:
    server.tables += "[creation_rate]\nmax_connection_creation_rate = 5000\n"
    server.reload()


@change
def quotas_of_clients(server: LiveServer) -> None:
    server.tables += '[client_quota]\nclients = { "<default>" = { producer_byte_rate = 50000000 } }\n'
    server.reload()


@change
def request_handlers(server: LiveServer) -> None:
    server.server["io_threads"] = "3"
    server.reload()


@change
def more_processors(server: LiveServer) -> None:
    server.plain["processors"] = "3"
    server.reload()


@change
def fewer_processors(server: LiveServer) -> None:
    server.plain["processors"] = "1"
    server.reload()


@change
def the_certificate(server: LiveServer) -> None:
    before = served_certificate(server)
    server.tls.issue("server", "CN=localhost", hosts=("localhost", "127.0.0.1", "::1"))
    server.reload()
    assert served_certificate(server) != before


def served_certificate(server: LiveServer) -> str:
    return ssl.get_server_certificate((HOST, server.tls_port), timeout=60)


@change
def a_listener_is_added_and_used(server: LiveServer) -> None:
    server.more["more"] = f'bind = "{HOST}:{server.more_port}"\n'
    server.reload()
    use(server, "added")


@change
def its_port_passes_to_another_listener(server: LiveServer) -> None:
    server.more = {"other": server.more.pop("more")}
    server.reload()
    use(server, "passed")


@change
def the_listener_is_removed(server: LiveServer) -> None:
    del server.more["other"]
    server.reload()
    with pytest.raises(ConnectionRefusedError):
        RawClient((HOST, server.more_port))


@change
def it_is_added_again_with_tls(server: LiveServer) -> None:
    files = server.tls.server
    server.more["other"] = f"""bind = "{HOST}:{server.more_port}"
transport = "ssl"
[listeners.other.ssl]
certificate = "{files.certificate}"
private_key = "{files.key}"
"""
    server.reload()
    with stream("again", {**server.secure, "bootstrap.servers": f"localhost:{server.more_port}"}) as made:
        made.go_on()


@change
def it_is_removed_again(server: LiveServer) -> None:
    server.more.clear()
    server.reload()


@change
def handlers_by_a_client(server: LiveServer) -> None:
    server.alter(ResourceType.BROKER, "1", num_io_threads="5")


@change
def processors_by_a_client(server: LiveServer) -> None:
    server.alter(ResourceType.BROKER, "1", num_network_threads="2")


@change
def defaults_of_topics(server: LiveServer) -> None:
    server.alter(ResourceType.BROKER, "1", message_max_bytes="500000", log_retention_ms="86400000")


@change
def limits_of_connections_by_a_client(server: LiveServer) -> None:
    server.alter(ResourceType.BROKER, "1", max_connections="700", max_connections_per_ip="600")


@change
def a_topic(server: LiveServer) -> None:
    server.alter(ResourceType.TOPIC, "plain", segment_bytes="1048576")


@change
def quotas_by_a_client(server: LiveServer) -> None:
    entry = RequestEntryData([RequestEntityData("client-id", None)], [OpData("consumer_byte_rate", 50e6)])
    with RawClient((HOST, server.port), timeout_s=60) as client:
        assert client.call(AlterClientQuotasRequest([entry]), 1).entries[0].error_code == 0


@change
def acls(server: LiveServer) -> None:
    anyone = ("User:anyone", "*", AclOperation.READ, AclPermissionType.ALLOW)
    binding = AclBinding(ResourceType.TOPIC, "secure", ResourcePatternType.LITERAL, *anyone)
    admin = AdminClient(server.secure)
    admin.create_acls([binding])[binding].result(60)


@change
def users(server: LiveServer) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    alteration = UserScramCredentialUpsertion("alice", credential, b"a secret")
    admin = server.admin()
    admin.alter_user_scram_credentials([alteration])["alice"].result(60)


@change
def a_reload_over_what_clients_have_changed(server: LiveServer) -> None:
    server.server["io_threads"] = "4"
    server.reload()


def test_no_record_is_lost_while_a_server_changes(tmp_path: Path) -> None:
    assert len(CHANGES) >= 20
    directory = tmp_path / "server"
    directory.mkdir()
    with (
        LiveServer(directory) as server,
        stream("plain", {"bootstrap.servers": server.bootstrap}) as plain,
        stream("secure", server.secure) as secure,
    ):
        for one in CHANGES:
            one(server)
            plain.go_on()
            secure.go_on()
