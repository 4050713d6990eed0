"""Templates of parts that see requests: filter, handler set, observer."""

from __future__ import annotations

from typing import Final

from klamm.cli.templates.package import Template

FILTER: Final = Template(
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
    prefix: str = setting("", doc="Prefix that the names of new topics must have.")


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
from klamm.testing import EmbeddedServer, check_filter
from MODULE.part import CLASS, CLASSSettings


def test_names_have_the_prefix():
    settings = ['listeners.default.filters=["PART"]', "listeners.default.PART.prefix=ours-"]
    with EmbeddedServer(settings, plugins=[MODULE]) as server:
        server.create_topic("ours-1")
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            server.create_topic("theirs")


def test_it_keeps_its_contract():
    check_filter(CLASS, CLASSSettings(prefix="ours-"))
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

API_SET: Final = Template(
    "klamm_api_sets",
    "a cluster of one broker, without topics",
    '''\
from dataclasses import dataclass

from klamm import ApiSet, RequestContext, handles, setting
from klamm.wire.messages import metadata


@dataclass(frozen=True, slots=True)
class CLASSSettings:
    cluster_id: str = setting("PART", doc="Cluster id in the response to Metadata.")


class CLASS(ApiSet):
    """SENTENCE."""

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def find_brokers(self, request: metadata.MetadataRequest, context: RequestContext) -> metadata.MetadataResponse:
        host, port = context.listener.advertised
        brokers = [metadata.MetadataResponseBroker(1, host, port)]
        return metadata.MetadataResponse(brokers=brokers, cluster_id=self.settings.cluster_id, controller_id=1)
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer, RawClient, check_api_set
from klamm.wire.messages.metadata import MetadataRequest
from MODULE.part import CLASS, CLASSSettings


def test_there_is_one_broker():
    settings = ["listeners.default.api_set=PART", "PART.cluster_id=ours"]
    with EmbeddedServer(settings, plugins=[MODULE]) as server, RawClient(server.address()) as client:
        answer = client.call(MetadataRequest(topics=None), 12)
        (broker,) = answer.brokers
        assert (broker.host, broker.port) == server.address()
        assert answer.cluster_id == "ours"


def test_it_keeps_its_contract():
    check_api_set(CLASS, CLASSSettings())
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
api_set = "PART"

[PART]
cluster_id = "ours"
```
""",
)

OBSERVER: Final = Template(
    "klamm_request_observers",
    "counts requests by API",
    '''\
from collections import Counter

from klamm import ListenerContext, RequestEvent, RequestObserver


class CLASS(RequestObserver):
    """SENTENCE.

    Several threads call it concurrently, and it must not block.
    """

    def open(self, listener: ListenerContext) -> None:
        self.counts: Counter[str] = Counter()

    def completed(self, event: RequestEvent) -> None:
        self.counts[event.context.api_name] += 1
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer, check_observer
from MODULE.part import CLASS


def test_requests_are_counted():
    with EmbeddedServer(['listeners.default.observers=["PART"]'], plugins=[MODULE]) as server:
        server.create_topic()
        observer = server.part("default", "PART")
        server.wait_until(lambda: observer.counts["CreateTopics"] == 1)


def test_it_keeps_its_contract():
    check_observer(CLASS)
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
observers = ["PART"]
```
""",
)
