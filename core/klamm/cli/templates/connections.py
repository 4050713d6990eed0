"""Templates of parts that decide about connections and clients: gate, authorizer; and of an extension."""

from __future__ import annotations

from typing import Final

from klamm.cli.templates.package import Template

GATE: Final = Template(
    "klamm_connection_gates",
    "limits the open connections of a listener",
    '''\
import threading
from dataclasses import dataclass

from klamm import Address, Admission, ConnectionGate, Refuse, setting


@dataclass(frozen=True, slots=True)
class CLASSSettings:
    max_connections: int = setting(100, doc="Connections that may be open at once.", minimum=1)


class CLASS(ConnectionGate):
    """SENTENCE."""

    def __init__(self, settings: CLASSSettings) -> None:
        super().__init__(settings)
        # Protects the count, because connections open and close on several threads.
        self._lock = threading.Lock()
        self._open = 0

    def admit(self, address: Address) -> Admission:
        with self._lock:
            if self._open >= self.settings.max_connections:
                return Refuse("too_many_connections")
            self._open += 1
        return None

    def release(self, address: Address) -> None:
        with self._lock:
            self._open -= 1
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer, RawClient, check_gate
from klamm.wire.messages.metadata import MetadataRequest
from MODULE.part import CLASS, CLASSSettings


def test_there_is_a_limit():
    settings = ['listeners.default.gates=["PART"]', "listeners.default.PART.max_connections=1"]
    with EmbeddedServer(settings, plugins=[MODULE]) as server, RawClient(server.address()) as first:
        first.call(MetadataRequest(topics=None), 12)
        with RawClient(server.address()) as second:
            assert second.at_end()
        first.call(MetadataRequest(topics=None), 12)


def test_it_keeps_its_contract():
    check_gate(CLASS, CLASSSettings(max_connections=5))
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
gates = ["PART"]

[listeners.default.PART]
max_connections = 10
```
""",
)

AUTHORIZER: Final = Template(
    "klamm_authorizers",
    "allows every principal to read, and denies everything else",
    '''\
from klamm import RequestContext
from klamm.acl import AclOperation, Authorizer, ResourceType

_READING = frozenset({AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS})


class CLASS(Authorizer):
    """SENTENCE.

    Several threads call it concurrently, and it must not block.
    """

    def authorize(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        return operation in _READING

    def authorize_by_resource_type(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return operation in _READING
''',
    """\
import MODULE
import pytest

from klamm import KafkaError
from klamm.testing import EmbeddedServer, check_authorizer
from MODULE.part import CLASS


def test_only_reading_is_allowed():
    with EmbeddedServer(["listeners.default.authorizer=PART"], plugins=[MODULE]) as server:
        assert server.admin.topics() == {}
        with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED"):
            server.create_topic()


def test_it_keeps_its_contract():
    check_authorizer(CLASS)
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
authorizer = "PART"
```
""",
)

EXTENSION: Final = Template(
    "klamm_extensions",
    "logs the addresses of the listeners when they answer",
    '''\
import logging

from klamm import ServerExtension, ServerServices

log = logging.getLogger("NAME")


class CLASS(ServerExtension):
    """SENTENCE."""

    def open(self, server: ServerServices) -> None:
        self._server = server

    def ready(self) -> None:
        for name, listener in self._server.listeners.items():
            log.warning("%s answers on %s", name, listener.bound)
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer, check_extension
from MODULE.part import CLASS


def test_listeners_are_logged(caplog):
    with EmbeddedServer(['server.extensions=["PART"]'], plugins=[MODULE]) as server:
        assert f"default answers on {server.bootstrap}" in caplog.text


def test_it_keeps_its_contract():
    check_extension(CLASS)
""",
    """\
```toml
[server]
extensions = ["PART"]

[listeners.default]
bind = "127.0.0.1:9092"
```
""",
)
