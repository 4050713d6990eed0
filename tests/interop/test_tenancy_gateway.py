"""Tests of tenants of a gateway before a real Kafka: one sends each API in each version, and sees only its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import klamm_filters
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.contract.gateway_nodes import free_ports, gateway
from tests.contract.source_rules import ROOT
from tests.contract.tenants import PREFIXES, WALKS, TenantClient, walk_apis
from tests.peers.kafka_server import KafkaServer
from tests.peers.server import HOST
from tests.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]
# Kafka answers the first only with transactions, and the second only for a partition that exists.
UNANSWERED = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)


def settings(bootstrap: str) -> list[str]:
    made = []
    for name, prefix in PREFIXES.items():
        port = free_ports(1)
        made += [
            f"listeners.{name}.bind=127.0.0.1:0",
            f'listeners.{name}.filters=["topic_prefix"]',
            f"listeners.{name}.topic_prefix.prefix={prefix}",
            f"listeners.{name}.api_set=gate_{name}",
            f"gate_{name}.provider=gateway",
            f'gate_{name}.bootstrap=["{bootstrap}"]',
            f"gate_{name}.node_ports={port}-{port}",
            f"gate_{name}.first_node_id=1",
        ]
    return made


def find_coordinators(tenant: TenantClient) -> bool:
    """Find coordinators. Kafka creates the topics of its coordinators at the first request."""
    found = [
        tenant.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators[0]
        for kind, key in ((0, "grp"), (1, "txn"))
    ]
    return not any(one.error_code for one in found)


def test_no_api_of_kafka_shows_or_changes_things_of_the_other_tenant(tmp_path: Path) -> None:
    descriptions = {raw["name"]: raw for raw in json.loads((ROOT / "tools/messages/descriptions.json").read_text())}
    with (
        KafkaServer(
            tmp_path, {"group.initial.rebalance.delay.ms": "0", "group.max.session.timeout.ms": "300000"}
        ) as kafka,
        gateway(kafka.bootstrap, settings(kafka.bootstrap), plugins=[klamm_filters]) as front,
    ):
        a, b = (TenantClient(front.address(name), name, timeout_s=20) for name in PREFIXES)
        wait_until(lambda: find_coordinators(a) and find_coordinators(b))
        a.make(("orders", "only-of-a"))
        b.make()
        state = a.state()
        for walk in WALKS.values():
            answered = walk_apis(descriptions, (HOST, kafka.port), a, b, walk, unanswered=UNANSWERED)
            assert len(answered) > 50
            assert a.state() == state
        a.close()
        b.close()
