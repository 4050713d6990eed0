"""Tests of the broker as a whole: its directory, its ids, its periodic work, and its APIs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.config.setting import specs_of
from klamm.testing import EmbeddedServer
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import elect_leaders, init_producer_id, list_partition_reassignments
from klamm_broker import klamm_api_sets
from klamm_broker.broker import Broker
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.log.directory_lock import DataDirectoryLockedError
from klamm_broker.log.file_operations import UnsyncedFileOperations
from klamm_broker.storage.meta_properties import MetaPropertiesError, load, random_uuid, uuid_bytes, uuid_text
from klamm_broker.storage.store import StoreError
from tests.unit.broker.broker_harness import BrokerHarness


def test_provider_names_the_broker() -> None:
    provider, control = klamm_api_sets()
    assert (control.name, control.nodes_of) == ("control", "broker")
    assert provider.name == "broker"
    assert provider.load_factory() is Broker
    assert provider.load_settings() is BrokerSettings


def test_settings_are_named_as_in_kafka() -> None:
    specs = specs_of(BrokerSettings)
    assert specs.keys() == {name.replace("_", ".") for name in BrokerSettings.__dataclass_fields__}
    assert all(spec.kafka for spec in specs.values())


def test_the_handlers_serve_the_expected_versions(harness: BrokerHarness) -> None:
    served = {handler.api_key: (handler.min_version, handler.max_version) for handler in harness.broker.handlers()}
    assert served[ApiKey.PRODUCE] == (3, 13)
    assert served[ApiKey.FETCH] == (4, 18)
    assert served[ApiKey.METADATA] == (0, 13)
    assert served[ApiKey.INIT_PRODUCER_ID] == (0, 5)
    assert ApiKey.LEADER_AND_ISR not in served


def test_meta_properties_are_kept(harness: BrokerHarness) -> None:
    cluster_id = harness.broker.cluster_id
    assert len(uuid_bytes(cluster_id)) == 16
    text = (harness.data_dir / "meta.properties").read_text()
    assert set(text.split()) == {
        "version=1",
        f"cluster.id={cluster_id}",
        "node.id=1",
        f"directory.id={harness.broker.directory_id}",
    }
    assert harness.reopen().cluster_id == cluster_id


def test_directory_of_another_node_is_refused(harness: BrokerHarness) -> None:
    harness.broker.close()
    with pytest.raises(MetaPropertiesError, match=r"belongs to node\.id 1, but node\.id is set to 2"):
        harness.open(node_id=2)
    harness.open(node_id=1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "version is None"),
        ("version=0\nbroker.id=1\n", "version is 0"),
        ("version=1\nnode.id=1\n", r"cluster\.id is missing"),
        ("version=1\ncluster.id=x\nnode.id=one\n", "'one' is not a number"),
    ],
)
def test_unreadable_meta_properties_stop_the_start(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(MetaPropertiesError, match=complaint):
        BrokerHarness(tmp_path).open()


def test_binary_meta_properties_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"version=1\ncluster.id=\xff\n")
    with pytest.raises(MetaPropertiesError, match="is not UTF-8"):
        load(tmp_path, 1)


def test_meta_properties_of_kafka_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 05:45:52 UTC 2026\nnode.id=1\nversion=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\ncluster.id=x=y\n"
    )
    harness = BrokerHarness(tmp_path)
    assert harness.open().cluster_id == "x=y"
    harness.broker.close()


def test_directory_is_locked_by_one_broker(harness: BrokerHarness) -> None:
    other = BrokerHarness(harness.data_dir)
    with pytest.raises(DataDirectoryLockedError):
        other.open()
    harness.create_topic("t")
    assert harness.produce("t", b"x").error_code == 0


def test_failed_open_leaves_nothing_behind(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.produce("t", b"x")
    harness.broker.close()
    database = harness.data_dir / "klamm.db"
    sound = database.read_bytes()
    database.write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError):
        harness.open()
    assert not (harness.data_dir / ".kafka_cleanshutdown").exists()
    database.write_bytes(sound)
    harness.open()
    assert harness.fetch("t").high_watermark == 1


def test_uuids_have_kafkas_form() -> None:
    numbers = iter([b"\xfb" * 16, b"\x01" * 16])
    uuid = random_uuid(lambda _count: next(numbers))
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", uuid_text(uuid))
    assert uuid_bytes(uuid_text(uuid)) == uuid
    assert (uuid[6] >> 4, uuid[8] >> 6) == (4, 2)


def new_producer_id(harness: BrokerHarness, transactional_id: str | None = None, version: int = 5) -> Any:
    request = init_producer_id.InitProducerIdRequest(transactional_id, 60_000)
    return harness.call(request, version)


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 3)])
def test_init_producer_id_requires_both_id_and_epoch(harness: BrokerHarness, producer_id: int, epoch: int) -> None:
    request = init_producer_id.InitProducerIdRequest(None, 60_000, producer_id, epoch)
    assert harness.call(request, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_returns_a_new_id_each_time(harness: BrokerHarness, version: int) -> None:
    first, second = (new_producer_id(harness, version=version) for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.error_code, second.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id


def test_producer_ids_are_never_given_twice(harness: BrokerHarness) -> None:
    ids = [new_producer_id(harness).producer_id for _ in range(1500)]
    harness.reopen()
    ids += [new_producer_id(harness).producer_id for _ in range(3)]
    assert len(set(ids)) == len(ids)


def test_an_empty_transactional_id_is_refused(harness: BrokerHarness) -> None:
    response = new_producer_id(harness, "")
    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_election_of_the_present_leader_is_not_needed(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    wanted = [elect_leaders.TopicPartitions("t", [0, 1]), elect_leaders.TopicPartitions("nope", [0])]
    response = harness.call(elect_leaders.ElectLeadersRequest(0, wanted), 2)
    assert [[each.error_code for each in topic.partition_result] for topic in response.replica_election_results] == [
        [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert harness.call(elect_leaders.ElectLeadersRequest(1, None), 2).replica_election_results == []
    assert harness.call(elect_leaders.ElectLeadersRequest(2, None), 2).error_code == ErrorCode.INVALID_REQUEST
    assert harness.call(elect_leaders.ElectLeadersRequest(2, wanted), 2).error_code == ErrorCode.INVALID_REQUEST
    assert harness.call(elect_leaders.ElectLeadersRequest(2, []), 2).error_code == ErrorCode.NONE


def test_list_of_reassignments_is_empty(harness: BrokerHarness) -> None:
    response = harness.call(list_partition_reassignments.ListPartitionReassignmentsRequest(), 0)
    assert (response.error_code, response.topics) == (0, [])


def test_retention_runs_periodically(harness: BrokerHarness) -> None:
    harness.create_topic("t", retention_ms="1000", internal_segment_bytes="200")
    for _ in range(5):
        harness.produce("t", b"x" * 100)
    harness.advance_ms(300_000)
    assert harness.fetch("t", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_producers_expire(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(producer_id_expiration_ms=1000)
    harness.create_topic("t")
    harness.produce("t", b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    log = harness.broker.topics.all()[0].partitions[0].log
    assert len(log.active_producers()) == 1
    harness.advance_ms(600_000)
    assert log.active_producers() == []
    harness.broker.close()


def test_files_of_deleted_topics_are_deleted_after_a_while(harness: BrokerHarness) -> None:
    harness.create_topic("t", file_delete_delay_ms="1000")
    harness.advance_ms(60)
    topic = harness.broker.topics.get("t")
    assert topic is not None
    harness.broker.topics.delete(topic)
    assert list(harness.data_dir.glob("t-0.*-delete"))
    harness.advance_ms(60_000)
    assert not list(harness.data_dir.glob("t-0*"))


def test_the_broker_describes_itself(harness: BrokerHarness) -> None:
    harness.create_topic("a", 2)
    harness.create_topic("b")
    assert harness.broker.describe().startswith("node 1, 2 topics, 3 partitions, recovered in ")


@pytest.mark.parametrize("temporary", [True, False])
def test_a_temporary_store_is_not_synced(tmp_path: Path, temporary: bool) -> None:
    with EmbeddedServer(data_dir=None if temporary else tmp_path) as server:
        broker = server.api_set()
        assert isinstance(broker._operations, UnsyncedFileOperations) is temporary
        assert broker.store.is_temporary is temporary
        assert broker.store._connection.execute("PRAGMA synchronous").fetchone() == ((0 if temporary else 2),)
