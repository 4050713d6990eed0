"""A client sends requests of each API that leave as much data as possible.

Memory and disk stay within the limits of docs/protection.md, and another client can work meanwhile and afterwards.
"""

from __future__ import annotations

import gc
import logging
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from klamm import KafkaPrincipal
from klamm.metrics import HistogramValue
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_authorizers.acl import AclAuthorizer
from klamm_authorizers.authorizer_settings import AclSettings
from klamm_broker.handlers.served_apis import APIS
from klamm_broker.limits.tables import TABLES
from tests.unit.broker.broker_harness import BrokerHarness, fetch_request
from tests.unit.broker.state_generators import GENERATORS, LEAVES_NOTHING, ask, prepare

MIB: Final = 1_048_576
MALLORY, ALICE = KafkaPrincipal("mallory"), KafkaPrincipal("alice")
ALL_APIS: Final = [api.api_key for api in APIS]
PRODUCERS: Final = 2000
NOT_COUNTED_BYTES: Final = 4 * MIB
"""The memory that a broker takes for its first request of any kind, with code and caches."""


@pytest.mark.parametrize("api_key", ALL_APIS)
def test_each_api_has_a_generator_or_a_reason_for_none(api_key: ApiKey) -> None:
    assert (api_key in GENERATORS) != (api_key in LEAVES_NOTHING)


def test_the_lists_name_only_existing_apis() -> None:
    assert {*GENERATORS, *LEAVES_NOTHING} == {*ALL_APIS}


def small(total_bytes: int) -> dict[str, Any]:
    """Return settings in which each table has this total."""
    return dict.fromkeys((table.attribute for table in TABLES), total_bytes)


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Callable[[int], BrokerHarness]]:
    """Yield a broker in which each table has a total."""
    harness = BrokerHarness(tmp_path / "data")
    harness.data_dir.mkdir()
    key_file = tmp_path / "token.key"
    key_file.write_text("the key")

    def opened(total_bytes: int) -> BrokerHarness:
        harness.open(
            **{**small(total_bytes), "topic_max_bytes": 8 * total_bytes, "fetch_session_max_partitions": 2000},
            producer_id_max_entries=PRODUCERS,
            delegation_token_secret_key_file=key_file,
        )
        authorizer = AclAuthorizer(AclSettings(super_users=("User:mallory", "User:alice", "User:setup")))
        authorizer.open(harness.listener)
        harness.listener.authorizer = authorizer
        harness.listener.security_protocol = "SASL_PLAINTEXT"
        harness.principal = KafkaPrincipal("setup")
        prepare(harness)
        harness.create_topic("honest", 10)
        work_of_another(harness, 0)
        return harness

    # A log record may keep a reference to the request during which it was made.
    logging.disable()
    yield opened
    harness.broker.close()
    logging.disable(logging.NOTSET)


def work_of_another(harness: BrokerHarness, number: int) -> None:
    """Use existing objects of alice, and give alice new ones."""
    before, harness.principal = harness.principal, ALICE
    try:
        for group, partition in (("honest", 0), ("honest", number % 10), (f"honest-{number}", 0)):
            topic = OffsetCommitRequestTopic("honest", partitions=[OffsetCommitRequestPartition(partition, number)])
            committed = ask(harness, OffsetCommitRequest(group, -1, "", topics=[topic]), 8)
            assert committed.topics[0].partitions[0].error_code == 0
        assert harness.produce("honest", b"value", partition=number % 10).error_code == 0
        assert ask(harness, InitProducerIdRequest(f"honest-{number}", 1000), 4).error_code == 0
        created = ask(harness, CreateTopicsRequest([CreatableTopic(f"honest-{number}", 1, 1)]), 7)
        assert created.topics[0].error_code == 0
        fetched = ask(harness, fetch_request("honest", (0, 0), session_id=0, session_epoch=0), 12)
        assert fetched.session_id != 0
        ask(harness, fetch_request("honest", session_id=fetched.session_id, session_epoch=-1), 12)
    finally:
        harness.principal = before


def check_tables(harness: BrokerHarness) -> None:
    for table in TABLES:
        ledger = harness.broker.limits[table]
        assert ledger.used <= ledger.total, table.name
    assert metric(harness, "kafka.server:type=ReplicaManager,name=ProducerIdCount") <= PRODUCERS


def metric(harness: BrokerHarness, name: str) -> float:
    """Return the only value of a metric."""
    (family,) = harness.listener.services.metrics.collect(lambda each: each == name)
    (sample,) = family.samples
    assert not isinstance(sample.value, HistogramValue)
    return sample.value


def disk_bytes(harness: BrokerHarness) -> int:
    """Return the size of the store, and of the writes in its log that it has not yet applied."""
    return sum(each.stat().st_size for each in harness.data_dir.iterdir() if each.name.startswith("klamm.db"))


@pytest.mark.parametrize("api_key", GENERATORS, ids=lambda api_key: api_key.name)
def test_the_state_that_an_api_leaves_behind_is_limited(
    attacked: Callable[[int], BrokerHarness], api_key: ApiKey
) -> None:
    """The growth in memory and on disk is at most that of the API's own tables."""
    harness = attacked(MIB // 2)
    send = GENERATORS[api_key]
    ledgers = [harness.broker.limits[table] for table in TABLES if api_key in table.grows_by]
    allowed = sum(ledger.total for ledger in ledgers)
    harness.principal = MALLORY
    send(harness, 0)
    tracemalloc.start()
    try:
        for number in range(1, 60):
            send(harness, number)
            if number % 20 == 0:
                work_of_another(harness, number)
                check_tables(harness)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert used <= allowed + NOT_COUNTED_BYTES
    assert not ledgers or any(ledger.refused for ledger in ledgers)
    evictions = metric(harness, "klamm:type=StateLimits,name=ProducerIdEvictionsPerSec")
    assert (evictions > 0) == (api_key is ApiKey.PRODUCE)
    harness.broker.store.write_and_wait(())
    assert disk_bytes(harness) <= 3 * allowed + 2 * NOT_COUNTED_BYTES
    work_of_another(harness, 1000)


@pytest.mark.slow
def test_the_state_that_all_apis_leave_behind_in_a_minute_is_limited(attacked: Callable[[int], BrokerHarness]) -> None:
    harness = attacked(4 * MIB)
    harness.principal = MALLORY
    total = sum(harness.broker.limits[table].total for table in TABLES)
    tracemalloc.start()
    end = time.monotonic() + 60
    number = 0
    while time.monotonic() < end:
        for send in GENERATORS.values():
            send(harness, number)
        number += 1
        check_tables(harness)
        if number % 10 == 0:
            work_of_another(harness, number // 10)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert used <= total + NOT_COUNTED_BYTES
    assert disk_bytes(harness) <= 3 * total
    work_of_another(harness, 100_000)
