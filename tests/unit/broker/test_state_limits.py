"""The registry of tables that clients can make grow: settings, metrics, documents, and the APIs that fill tables."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import pytest

from klamm import ErrorCode, KafkaError, KafkaPrincipal
from klamm.config import specs_of
from klamm.shared import SharedState, Table
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.wire.messages.delete_topics import DeleteTopicsRequest
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.limits.ledger import Ledger
from klamm_broker.limits.owners import owner_of
from klamm_broker.limits.tables import CONFIGS, GROUPS, OFFSETS, TABLES, TOPICS, TRANSACTIONAL_IDS, StateTable
from klamm_broker.storage.migrations import MIGRATIONS
from klamm_broker.storage.shared_tables import SharedTables
from klamm_broker.storage.store import Store
from klamm_broker.topics.accounts import PARTITION_BYTES
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.state_generators import GENERATORS
from tests.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[3]

OTHERWISE_LIMITED: Final = {
    ApiKey.PRODUCE: "`producer.id.max.entries`",
    ApiKey.FETCH: "`fetch.session.max.partitions`",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "16,384 clients",
    ApiKey.PUSH_TELEMETRY: "16,384 clients",
}


@pytest.mark.parametrize("api_key", GENERATORS, ids=lambda api_key: api_key.name)
def test_each_api_that_leaves_data_names_its_tables(api_key: ApiKey) -> None:
    grows = {key for table in TABLES for key in table.grows_by}

    assert (api_key in grows) != (api_key in OTHERWISE_LIMITED)


def test_the_page_names_the_other_limits() -> None:
    page = (ROOT / "docs" / "protection.md").read_text("utf-8")

    assert [name for name in OTHERWISE_LIMITED.values() if name not in page] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_table_has_a_setting_and_a_row_in_the_docs(table: StateTable) -> None:
    (spec,) = (each for each in specs_of(BrokerSettings).values() if each.attribute == table.attribute)
    page = (ROOT / "docs" / "protection.md").read_text("utf-8")

    total = f"{getattr(BrokerSettings(), table.attribute) >> 20} MiB"
    assert spec.name == table.key
    assert f"| {table.name} | `{table.key}` | {total} | {table.content} | {table.error.name} | {table.goes} |" in page


def test_each_table_has_metrics(harness: BrokerHarness) -> None:
    families = {family.name: family for family in harness.listener.services.metrics.collect()}

    for name in ("Used", "Limit", "LargestShare", "ShareLimit", "RefusedPerSec"):
        samples = families[f"klamm:type=StateLimits,name={name}"].samples
        assert [sample.labels["table"] for sample in samples] == [table.name for table in TABLES]


def commit(group_id: str, partitions: int, metadata: str) -> OffsetCommitRequest:
    topic = OffsetCommitRequestTopic(
        "t",
        partitions=[OffsetCommitRequestPartition(index, 1, committed_metadata=metadata) for index in range(partitions)],
    )
    return OffsetCommitRequest(group_id, -1, "", topics=[topic])


def test_offsets_of_invented_groups_stay_within_the_share(harness: BrokerHarness) -> None:
    """The owner is still known after a restart, when another owner has room."""
    harness.reopen(offsets_max_bytes=4 * 1_048_576)
    harness.create_topic("t", 100)
    for number in range(20):
        harness.send(commit(f"invented-{number}", 100, "m" * 4096), 9)
    ledger = harness.broker.limits[OFFSETS]
    harness.broker.store.write_and_wait(())

    assert ledger.used <= ledger.share
    assert ledger.used_by("127.0.0.1") == ledger.used > 0
    used = ledger.used
    harness.reopen(offsets_max_bytes=4 * 1_048_576)
    assert harness.broker.limits[OFFSETS].used_by("127.0.0.1") == used
    assert harness.broker.limits[GROUPS].used_by("127.0.0.1") == harness.broker.limits[GROUPS].used
    harness.principal = KafkaPrincipal("alice")
    reply = harness.send(commit("honest", 10, ""), 9)
    harness.broker.store.write_and_wait(())
    codes = [each.error_code for topic in reply.response.topics for each in topic.partitions]
    assert codes == [ErrorCode.NONE] * 10


def test_transactional_ids_stay_within_the_share(harness: BrokerHarness) -> None:
    harness.reopen(transactional_id_max_bytes=1_048_576)

    def init(name: str) -> int:
        reply = harness.send(InitProducerIdRequest(name, 1000), 4)
        harness.broker.store.write_and_wait(())
        return int(reply.response.error_code)

    codes = [init(f"{number}-" + "x" * 30_000) for number in range(20)]
    ledger = harness.broker.limits[TRANSACTIONAL_IDS]

    assert codes.count(0) == 14
    assert set(codes) == {0, ErrorCode.POLICY_VIOLATION}
    assert ledger.used <= ledger.share
    assert init("0-" + "x" * 30_000) == 0
    harness.principal = KafkaPrincipal("alice")
    assert init("honest") == 0
    used = ledger.used
    harness.reopen(transactional_id_max_bytes=1_048_576)
    assert harness.broker.limits[TRANSACTIONAL_IDS].used == used
    harness.advance_ms(8 * 86_400_000)
    harness.broker.store.write_and_wait(())
    assert harness.broker.limits[TRANSACTIONAL_IDS].used == 0
    assert harness.broker.store.read("SELECT * FROM state_owners") == []


def test_a_ledger_reserves_room_for_entries_in_use() -> None:
    ledger = Ledger("things", 100, 0.5)

    assert ledger.reserve("a", 46)
    assert not ledger.reserve("a", 1)
    assert ledger.reserve("a", 4, in_use=True)
    assert not ledger.reserve("a", 1, in_use=True)
    assert ledger.reserve("b", 16)
    assert ledger.reserve_each("b", [3, 3, 1]) == [False, False, True]
    assert (ledger.used, ledger.refused, ledger.largest_share, ledger.present_share) == (67, 4, 50, 21)
    ledger.add("a", -50)
    assert (ledger.used, ledger.used_by("a")) == (17, 0)


@pytest.mark.parametrize("greedy", [1, 2, 10, 100])
@pytest.mark.parametrize("in_use", [False, True])
def test_owners_at_their_share_leave_room_for_others(greedy: int, in_use: bool) -> None:
    """Owners fill the tables one after the other, and also the part that is reserved for growing entries."""
    ledger = Ledger("things", 1_000_000, 0.5)

    for _ in range(60):
        for owner in range(greedy):
            amount = 1_000_000
            while amount:
                if not ledger.reserve(f"greedy-{owner}", amount, in_use=in_use):
                    amount //= 2

    assert ledger.largest_share <= 500_000
    assert ledger.reserve("next", 250_000 // (greedy + 1) ** 2)
    assert ledger.used <= 1_000_000


def test_topics_stay_within_the_share(harness: BrokerHarness) -> None:
    """Their partitions and configs count too, also after a restart. Deleted topics make room."""
    harness.reopen(topic_max_bytes=100 * PARTITION_BYTES)

    def create(name: str, partitions: int, value: str = "1") -> int:
        topic = CreatableTopic(name, partitions, 1, configs=[CreatableTopicConfig("retention.ms", value)])
        return int(harness.call(CreateTopicsRequest([topic]), 7).topics[0].error_code)

    def grow(name: str, partitions: int) -> int:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)], 1000)
        return int(harness.call(request, 3).results[0].error_code)

    def configure(name: str, length: int) -> int:
        throttled = ",".join("1000:0" for _ in range(length // 7))
        config = AlterableConfig("leader.replication.throttled.replicas", 0, throttled)
        resource = AlterConfigsResource(2, name, [config])
        return int(harness.call(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code)

    codes = [create(f"invented-{number}", 10) for number in range(10)]
    assert codes == [0] * 4 + [ErrorCode.POLICY_VIOLATION] * 6
    assert grow("invented-0", 100) == ErrorCode.POLICY_VIOLATION
    assert [configure(f"invented-{number}", 26_000) for number in range(4)] == [0] * 3 + [ErrorCode.POLICY_VIOLATION]
    assert configure("invented-0", 12_000) == 0
    assert grow("invented-0", 11) == 0
    ledger = harness.broker.limits[TOPICS]
    used = ledger.used
    assert ledger.used_by("127.0.0.1") == used > 41 * PARTITION_BYTES
    harness.reopen(topic_max_bytes=100 * PARTITION_BYTES)
    ledger = harness.broker.limits[TOPICS]
    assert (ledger.used, ledger.used_by("127.0.0.1")) == (used, used)
    assert create("again", 10) == ErrorCode.POLICY_VIOLATION
    harness.principal = KafkaPrincipal("alice")
    assert create("honest", 10) == 0
    names = [f"invented-{number}" for number in range(4)] + ["honest"]
    harness.call(DeleteTopicsRequest([], names, 1000), 5)
    assert ledger.used == 0
    harness.broker.store.write_and_wait(())
    assert harness.broker.store.read("SELECT * FROM state_owners WHERE kind = 'topic'") == []


def test_topics_that_metadata_creates_stay_within_the_share(harness: BrokerHarness) -> None:
    harness.reopen(topic_max_bytes=100 * PARTITION_BYTES)
    names = [f"invented-{number}" for number in range(60)]

    harness.call(MetadataRequest([MetadataRequestTopic(name=name) for name in names]), 9)
    harness.broker.auto_creation.wait()

    assert len(harness.broker.topics.all()) == 46
    assert harness.broker.limits[TOPICS].used_by("127.0.0.1") == harness.broker.limits[TOPICS].used


def test_new_configs_are_limited(harness: BrokerHarness) -> None:
    harness.reopen(config_max_bytes=20_000)

    def configure(group: str, value: str | None) -> int:
        config = AlterableConfig("consumer.session.timeout.ms", 0 if value else 1, value)
        resource = AlterConfigsResource(32, group, [config])
        return int(harness.call(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code)

    codes = [configure(f"invented-{number}", "50000") for number in range(20)]

    made = codes.count(0)
    assert codes == [0] * made + [ErrorCode.POLICY_VIOLATION] * (20 - made)
    assert 10 < made < 20
    assert configure("invented-0", "55000") == 0
    ledger = harness.broker.limits[CONFIGS]
    used = ledger.used
    harness.reopen(config_max_bytes=20_000)
    ledger = harness.broker.limits[CONFIGS]
    assert ledger.used == used
    assert configure("more", "50000") == ErrorCode.POLICY_VIOLATION
    for number in range(made):
        assert configure(f"invented-{number}", None) == 0
    assert ledger.used == 0


def test_new_shared_rows_are_limited(tmp_path: Path) -> None:
    """Rows with an owner, e.g. delegation tokens, also have a share for each owner."""
    store = Store(tmp_path / "klamm.db")
    store.open()
    store.start()

    def attached() -> tuple[Table, Table, Ledger, Ledger]:
        users = Ledger("users", 100_000, 0.5, ErrorCode.POLICY_VIOLATION)
        tokens = Ledger("tokens", 100_000, 0.5, ErrorCode.POLICY_VIOLATION)
        shared = SharedState()
        shared.attach(SharedTables(store, {"users": users, "tokens": tokens}))
        return shared.table("users"), shared.table("tokens"), users, tokens

    def put(table: Table, number: int, text: str, owner: str) -> bool:
        with contextlib.suppress(KafkaError):
            table.update({str(number): {"text": text, "owner": ["User", owner]}})
            return True
        return False

    users, tokens, counted, counted_tokens = attached()
    made = sum(put(tokens, number, "x" * 5000, "mallory") for number in range(20))
    assert 5 < made < 10
    assert put(tokens, 100, "x" * 5000, "alice")
    assert put(tokens, 0, "y" * 5100, "mallory")
    assert not put(tokens, 0, "y" * 50_000, "mallory")
    assert (tokens.rows["0"]["text"], len(tokens.rows)) == ("y" * 5100, made + 1)
    for number in range(20):
        with contextlib.suppress(KafkaError):
            users.update({str(number): {"text": "x" * 5000}})
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        users.update({"more": {"text": "x" * 5000}})
    assert 10 < len(users.rows) < 20
    before = counted.used, counted_tokens.used, counted_tokens.used_by("User:mallory")
    users, tokens, counted, counted_tokens = attached()
    assert (counted.used, counted_tokens.used, counted_tokens.used_by("User:mallory")) == before
    tokens.update(dict.fromkeys(tokens.rows))
    users.update(dict.fromkeys(users.rows))
    assert (counted.used, counted_tokens.used) == (0, 0)
    store.close()


def test_long_principals_count_as_separate_owners(harness: BrokerHarness) -> None:
    reply = harness.send(InitProducerIdRequest(None), 4)

    def owner(name: str) -> str:
        harness.principal = KafkaPrincipal(name)
        return owner_of(harness.context(reply, ApiKey.INIT_PRODUCER_ID, 4))

    first, second = owner("CN=" + "x" * 300 + ",OU=a"), owner("CN=" + "x" * 300 + ",OU=b")

    assert owner("alice") == "User:alice"
    assert first != second
    assert max(len(first), len(second)) < 256


def size_with_wal(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir() if each.name.startswith(path.name))


@pytest.mark.parametrize("is_old", [False, True])
def test_the_stores_file_becomes_smaller_after_deletions(tmp_path: Path, is_old: bool) -> None:
    """An earlier klamm could not make its file smaller. With `is_old`, the file is from such a klamm."""
    path = tmp_path / "klamm.db"
    if is_old:
        connection = sqlite3.connect(path)
        for number, script in enumerate(MIGRATIONS, 1):
            connection.executescript(f"BEGIN; {script} PRAGMA user_version={number}; COMMIT;")
        connection.close()
    store = Store(path)
    store.open()
    try:
        put = "INSERT INTO state_owners (kind, name, owner) VALUES ('group', ?, ?)"
        store.write_and_wait([(put, (str(number), "o" * 4000)) for number in range(8000)])
        full = size_with_wal(path)
        store.write_and_wait([("DELETE FROM state_owners", ())])
        while store.give_back():
            pass
        assert full > 30_000_000
        assert size_with_wal(path) < full / 4
    finally:
        store.close()


def test_the_stores_thread_frees_space_between_writes(tmp_path: Path) -> None:
    path = tmp_path / "klamm.db"
    store = Store(path)
    store.open()
    store.start()
    put = "INSERT INTO state_owners (kind, name, owner) VALUES ('group', ?, ?)"
    store.write_and_wait([(put, (str(number), "o" * 4000)) for number in range(8000)])
    store.write_and_wait([("DELETE FROM state_owners", ())])
    wait_until(lambda: store.read("PRAGMA freelist_count")[0][0] <= 1024)
    store.close()

    assert size_with_wal(path) < 16_000_000
