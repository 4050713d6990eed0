"""Administrative changes on a failing disk: each step of each change fails once, and then works again.

Either the request gets an error, whose text names no files and no SQL, and works without a restart once the disk is
sound; or the failed step is not needed, and the change is made. A restart finds the same state.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from klamm.wire.api_keys import ApiKey, spec_of
from klamm.wire.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    incremental_alter_configs,
    offset_commit,
    offset_delete,
)
from klamm_broker.handlers.served_apis import APIS
from klamm_broker.log.file_operations import FileOperations
from klamm_spark.requests.state_changes import ADMIN_CHANGES
from tests.faults.crash_states.recorded_disk import Fault, RecordedDisk, Recording
from tests.faults.crash_states.workload import ERRORS, QuietHarness
from tests.faults.test_crash_states import no_threads  # noqa: F401

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("no_threads")]

_IN_A_ROW: Final = 4
"""The number of failing calls. A full disk first takes a part of a write."""
_TOPIC: Final = 2


class Change(NamedTuple):
    """A request for an administrative change, and its version."""

    request: Any
    version: int


def _alter_configs() -> Any:
    wanted = [alter_configs.AlterableConfig("retention.ms", "77")]
    return alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(_TOPIC, "t", wanted)])


def _alter_some_configs() -> Any:
    wanted = [incremental_alter_configs.AlterableConfig("retention.ms", 0, "77")]
    resource = incremental_alter_configs.AlterConfigsResource(_TOPIC, "t", wanted)
    return incremental_alter_configs.IncrementalAlterConfigsRequest([resource])


def _alter_quotas() -> Any:
    entity = [alter_client_quotas.RequestEntityData("user", "u")]
    change = [alter_client_quotas.OpData("producer_byte_rate", 5.0, False)]
    return alter_client_quotas.AlterClientQuotasRequest([alter_client_quotas.RequestEntryData(entity, change)])


def _alter_users() -> Any:
    wanted = alter_user_scram_credentials.ScramCredentialUpsertion("u", 1, 4096, b"salt", b"x" * 32)
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest([], [wanted])


def _delete_offsets() -> Any:
    partitions = [offset_delete.OffsetDeleteRequestPartition(0)]
    return offset_delete.OffsetDeleteRequest("g", [offset_delete.OffsetDeleteRequestTopic("t", partitions)])


CHANGES: Final = {
    ApiKey.CREATE_TOPICS: Change(
        create_topics.CreateTopicsRequest(
            [
                create_topics.CreatableTopic(
                    "new", 2, 1, configs=[create_topics.CreatableTopicConfig("retention.ms", "9")]
                ),
                create_topics.CreatableTopic("newer", 1, 1),
            ]
        ),
        7,
    ),
    ApiKey.DELETE_TOPICS: Change(delete_topics.DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=1000), 5),
    ApiKey.CREATE_PARTITIONS: Change(
        create_partitions.CreatePartitionsRequest([create_partitions.CreatePartitionsTopic("t", 4, None)], 1000), 3
    ),
    ApiKey.DELETE_RECORDS: Change(
        delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic("t", [delete_records.DeleteRecordsPartition(0, 2)])], 1000
        ),
        2,
    ),
    ApiKey.ALTER_CONFIGS: Change(_alter_configs(), 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Change(_alter_some_configs(), 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Change(_alter_quotas(), 1),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Change(_alter_users(), 0),
    ApiKey.DELETE_GROUPS: Change(delete_groups.DeleteGroupsRequest(["g"]), 2),
    ApiKey.OFFSET_DELETE: Change(_delete_offsets(), 0),
}

_ROW: Final = "one row of a shared table, as AlterClientQuotas writes it"
_NOT_AWAITED: Final = "decided in memory; what the store has of it is written afterwards, and again with each change"
NOT_ASKED: Final = {
    ApiKey.CREATE_ACLS: _ROW,
    ApiKey.DELETE_ACLS: _ROW,
    ApiKey.CREATE_DELEGATION_TOKEN: _ROW,
    ApiKey.RENEW_DELEGATION_TOKEN: _ROW,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _ROW,
    ApiKey.UPDATE_FEATURES: "one row of the store, without files",
    ApiKey.ELECT_LEADERS: _NOT_AWAITED,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _NOT_AWAITED,
    ApiKey.ALTER_REPLICA_LOG_DIRS: "there is one log directory, so nothing moves",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "rows of the store, without files; `tests/unit/share` makes them fail",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "rows of the store, without files; `tests/unit/share` makes them fail",
}


def test_every_administrative_change_is_in_the_list() -> None:
    named = {api.api_key for api in APIS} & ADMIN_CHANGES.keys()
    assert named == CHANGES.keys() | NOT_ASKED.keys()
    assert not CHANGES.keys() & NOT_ASKED.keys()


class Recorded:
    """A broker with two topics, records and a group, on a disk that can be made to fail."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.recording = Recording(directory)
        self.harness = QuietHarness(directory, RecordedDisk(self.recording), self.recording)
        self.harness.open()
        for name in ("t", "u"):
            self.harness.create_topic(name, 2)
            self.harness.produce(name, b"a")
            self.harness.produce(name, b"b")
            self.harness.produce(name, b"c")
        partition = [offset_commit.OffsetCommitRequestPartition(0, 2)]
        topic = [offset_commit.OffsetCommitRequestTopic("t", partitions=partition)]
        self.harness.ask(offset_commit.OffsetCommitRequest("g", topics=topic), 8)
        self.harness.broker.logs.checkpoint(self.harness.clock.wall_ms())
        self.harness.settle()

    def ask(self, change: Change) -> list[tuple[int, str | None]]:
        """Send the request. Return the error codes of the answer, and their messages."""
        reply = self.harness.send(change.request, change.version)
        self.harness.settle()
        if reply.pending:
            self.harness.scheduler.run_due()
            self.harness.settle()
        return [*_outcomes(reply.response)]


def _outcomes(answer: Any) -> Iterator[tuple[int, str | None]]:
    if isinstance(answer, list | tuple):
        for each in answer:
            yield from _outcomes(each)
    elif hasattr(answer, "__slots__"):
        if hasattr(answer, "error_code"):
            yield answer.error_code, getattr(answer, "error_message", None)
        for name in answer.__slots__:
            yield from _outcomes(getattr(answer, name))


def state(harness: QuietHarness) -> dict[str, Any]:
    """Return the state that administrative requests can change."""
    broker = harness.broker
    return {
        "topics": {topic.name: (len(topic.partitions), dict(topic.overrides)) for topic in broker.topics.all()},
        "starts": {
            repr(each): (each.log.log_start_offset, each.log.end_offset)
            for topic in broker.topics.all()
            for each in topic.partitions
        },
        "rows": sorted(broker.store.read("SELECT table_name, key FROM shared_rows")),
        "offsets": sorted(broker.store.read("SELECT group_id, topic, partition, committed_offset FROM offsets")),
    }


def after_a_kill(harness: QuietHarness, directory: Path) -> dict[str, Any]:
    """Return the state of a broker that starts on a copy of the directory."""
    shutil.copytree(harness.data_dir, directory)
    other = QuietHarness(directory, FileOperations(), None)
    other.open()
    other.settle()
    found = state(other)
    other.broker.close()
    return found


def texts_are_clean(outcomes: list[tuple[int, str | None]], directory: Path) -> bool:
    text = " ".join(message or "" for _code, message in outcomes)
    return str(directory) not in text and not re.search("klamm.db|SELECT|INSERT|constraint|/", text)


@pytest.mark.parametrize("error", ERRORS, ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("key", CHANGES, ids=lambda key: spec_of(key).name)
def test_a_change_that_failed_works_once_the_disk_is_sound(tmp_path: Path, key: ApiKey, error: int) -> None:
    change = CHANGES[key]
    sound = Recorded(tmp_path / "sound")
    first_call = sound.recording.calls
    assert {code for code, _message in sound.ask(change)} == {0}
    steps = sound.recording.calls - first_call
    wanted = state(sound.harness)
    assert steps >= 1
    refused = 0
    for step in range(steps):
        made = Recorded(tmp_path / f"step {step}")
        made.recording.fault = Fault(made.recording.calls + step, _IN_A_ROW, error)
        outcomes = made.ask(change)
        made.recording.fault = None
        assert texts_are_clean(outcomes, tmp_path), outcomes
        if any(code for code, _message in outcomes):
            refused += 1
            assert {code for code, _message in made.ask(change)} == {0}, f"step {step}: does not work again"
        assert state(made.harness) == wanted, f"step {step}"
        assert after_a_kill(made.harness, tmp_path / f"killed {step}") == wanted, f"step {step}"
        made.harness.broker.close()
        for directory in (made.directory, tmp_path / f"killed {step}"):
            shutil.rmtree(directory)
    assert refused, "no step that fails is answered with an error"
    sound.harness.broker.close()
