"""The texts of `klamm plugins new`. Words in capitals, e.g. NAME, MODULE and CLASS, are replaced."""

from __future__ import annotations

from typing import Final, NamedTuple


class Template(NamedTuple):
    """One kind of part: its hook, a line about it, its module, its tests, and the TOML that uses it."""

    hook: str
    summary: str
    part: str
    tests: str
    toml: str


PROJECT: Final = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "NAME"
version = "0.1.0"
description = "A KIND for klamm: SUMMARY"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["klamm"]

[project.optional-dependencies]
dev = ["pytest"]

[project.entry-points.klamm]
PART = "MODULE"

[tool.hatch.build.targets.wheel]
packages = ["MODULE"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

README: Final = """\
# NAME

A KIND for klamm: SUMMARY.

"""

INIT: Final = '''\
"""NAME: SUMMARY. This module is imported at every start of klamm, so it holds hooks alone."""

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def HOOK() -> Iterator[Provider]:
    yield Provider(
        "PART",
        factory="MODULE.part:CLASS",SETTINGS
        summary="SUMMARY",
    )
'''

_FILTER: Final = Template(
    "klamm_request_filters",
    "refuses topics whose names do not begin with a prefix",
    '''\
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from klamm import ErrorCode, KafkaError, RequestContext, RequestFilter, setting
from klamm.wire.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class CLASSSettings:
    prefix: str = setting("", doc="What the names of new topics begin with.")


class CLASS(RequestFilter):
    """SENTENCE."""

    @property
    def api_keys(self) -> Collection[int]:
        return (ApiKey.CREATE_TOPICS,)

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if not all(topic.name.startswith(self.settings.prefix) for topic in message.topics):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Names of topics begin with {self.settings.prefix}")
        return message
''',
    """\
import MODULE
import pytest

from klamm import KafkaError
from klamm.testing import EmbeddedServer


def test_names_have_the_prefix():
    settings = ['listeners.default.filters=["PART"]', "listeners.default.PART.prefix=ours-"]
    with EmbeddedServer(settings, plugins=[MODULE]) as server:
        server.create_topic("ours-1")
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            server.create_topic("theirs")
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
filters = ["PART"]

[listeners.default.PART]
prefix = "ours-"
```
""",
)

_API_SET: Final = Template(
    "klamm_api_sets",
    "a cluster of one broker, without topics",
    '''\
from klamm import ApiSet, RequestContext, handles
from klamm.wire.messages import metadata


class CLASS(ApiSet):
    """SENTENCE."""

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request: metadata.MetadataRequest, context: RequestContext) -> metadata.MetadataResponse:
        host, port = context.listener.advertised
        return metadata.MetadataResponse(brokers=[metadata.MetadataResponseBroker(1, host, port)], controller_id=1)
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest


def test_there_is_one_broker():
    settings = ["listeners.default.api_set=PART"]
    with EmbeddedServer(settings, plugins=[MODULE]) as server, RawClient(server.address()) as client:
        (broker,) = client.call(MetadataRequest(topics=None), 12).brokers
        assert (broker.host, broker.port) == server.address()
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
api_set = "PART"
```
""",
)

_OBSERVER: Final = Template(
    "klamm_request_observers",
    "counts requests by API",
    '''\
from collections import Counter

from klamm import ListenerContext, RequestEvent, RequestObserver


class CLASS(RequestObserver):
    """SENTENCE. Calls come from several threads, and must not block."""

    def open(self, listener: ListenerContext) -> None:
        self.counts: Counter[str] = Counter()

    def completed(self, event: RequestEvent) -> None:
        self.counts[event.context.api_name] += 1
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer


def test_requests_are_counted():
    with EmbeddedServer(['listeners.default.observers=["PART"]'], plugins=[MODULE]) as server:
        server.create_topic()
        observer = server.part("default", "PART")
        server.wait_until(lambda: observer.counts["CreateTopics"] == 1)
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
observers = ["PART"]
```
""",
)

_GATE: Final = Template(
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
        # Protects the count: connections come and go on several threads.
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

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest


def test_there_is_a_limit():
    settings = ['listeners.default.gates=["PART"]', "listeners.default.PART.max_connections=1"]
    with EmbeddedServer(settings, plugins=[MODULE]) as server, RawClient(server.address()) as first:
        first.call(MetadataRequest(topics=None), 12)
        with RawClient(server.address()) as second:
            assert second.at_end()
        first.call(MetadataRequest(topics=None), 12)
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

_AUTHORIZER: Final = Template(
    "klamm_authorizers",
    "allows every principal to read, and denies everything else",
    '''\
from klamm import RequestContext
from klamm.acl import AclOperation, Authorizer, ResourceType

_READING = frozenset({AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS})


class CLASS(Authorizer):
    """SENTENCE. Calls come from several threads, and must not block."""

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
from klamm.testing import EmbeddedServer


def test_only_reading_is_allowed():
    with EmbeddedServer(["listeners.default.authorizer=PART"], plugins=[MODULE]) as server:
        assert server.admin.topics() == {}
        with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED"):
            server.create_topic()
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
authorizer = "PART"
```
""",
)

_EXTENSION: Final = Template(
    "klamm_extensions",
    "logs where the listeners are once they answer",
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

from klamm.testing import EmbeddedServer


def test_listeners_are_logged(caplog):
    with EmbeddedServer(['server.extensions=["PART"]'], plugins=[MODULE]) as server:
        assert f"default answers on {server.bootstrap}" in caplog.text
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

KINDS: Final = {
    "filter": _FILTER,
    "api_set": _API_SET,
    "observer": _OBSERVER,
    "gate": _GATE,
    "authorizer": _AUTHORIZER,
    "extension": _EXTENSION,
}
