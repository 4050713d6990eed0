"""What a running Apache Kafka and klamm say of themselves: ApiVersions, features, configs of broker, topic, group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import find_spec
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.peers.kafka_server import KafkaServer
from tests.peers.server import HOST
from tools.release.comparison import ROOT, Difference, explained

pytestmark = [pytest.mark.interop, pytest.mark.slow]

RESOURCES = {"topic": (2, "compared"), "broker": (4, "1"), "group": (32, "g")}
# Values that a configuration gives, names of the two servers, and what an `EmbeddedServer` sets.
OF_THE_SERVER = {
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "node.id",
    "broker.id",
    "group.initial.rebalance.delay.ms",
}


def said(client: RawClient) -> Iterator[tuple[str, Any]]:
    """What a server says: a name, and a value to compare."""
    answer = client.call(ApiVersionsRequest("klamm", "1"), 5)
    for each in answer.api_keys:
        spec = find_spec(each.api_key)
        yield f"api:{spec.name if spec else each.api_key}", (each.min_version, each.max_version)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    for each in answer.supported_features:
        yield f"feature:{each.name}", (each.min_version, each.max_version, levels.get(each.name, 0))
    topic = CreatableTopic("compared", 1, 1)
    client.call(CreateTopicsRequest([topic]), 7)
    for kind, (number, name) in RESOURCES.items():
        request = DescribeConfigsRequest([DescribeConfigsResource(number, name)], include_synonyms=True)
        for each in client.call(request, 4).results[0].configs:
            is_default = each.config_source == 5
            yield f"{kind}:{each.name}", (each.config_type, each.is_sensitive, each.value if is_default else None)


def test_every_difference_is_explained(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka, EmbeddedServer() as klamm:
        with RawClient((HOST, kafka.port), timeout_s=60) as client:
            theirs = dict(said(client))
        with RawClient(klamm.address()) as client:
            ours = dict(said(client))
    is_explained = explained(*((ROOT / "docs" / name).read_text("utf-8") for name in ("deviations.md", "apis.md")))
    assert len(theirs) > 400
    unexplained = {
        name: (theirs[name], ours.get(name))
        for name in theirs
        if theirs[name] != ours.get(name)
        and not is_explained(Difference(name.partition(":")[2], ""))
        and name.partition(":")[2] not in OF_THE_SERVER
    }
    assert unexplained == {}
