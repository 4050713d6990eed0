"""A day and more of a simulated server: members join and leave, and records, transactions and tokens expire.

`python -m tests.unit.testing.simulated_days SECONDS` plays it, and prints what has expired and the processor time.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from klamm.testing import SimulatedServer
from klamm.testing.histories import Anomaly
from klamm.wire.messages import (
    create_delegation_token,
    describe_delegation_token,
    end_txn,
    incremental_alter_configs,
    list_offsets,
    offset_commit,
    offset_fetch,
)
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.sasl_client import plain, users_setting
from tests.unit.testing import simulated_groups as groups
from tests.unit.testing.simulated_clients import Ask, Workload, drive, partition_name
from tests.unit.testing.simulated_histories import PARTITIONS, consumer, idempotent, new_producer, written
from tests.unit.testing.simulated_script import TOPIC, produce_request

KEY: Final = "KLAMM_SIMULATED_TOKEN_KEY"
SETTINGS: Final = (
    *groups.SETTINGS,
    "listeners.default.authenticator=sasl",
    'listeners.default.sasl.mechanisms=["PLAIN"]',
    f"listeners.default.{users_setting(ann='secret')}",
    f"delegation.token.secret.key.env={KEY}",
    "delegation.token.expiry.check.interval.ms=60000",
    "log.retention.check.interval.ms=60000",
    "connections.max.idle.ms=1000000000",
)
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
PASSING: Final = "passing"
"""The topic whose records are deleted after ten minutes."""
_TOPIC_RESOURCE: Final = 2
_EARLIEST: Final = -2
_OWNER: Final = "ann"


class Days:
    """One run. `seen` counts what has expired."""

    def __init__(self, server: SimulatedServer, seed: int, seconds: int) -> None:
        self.server = server
        self.work = Workload(server)
        self.seen: Counter[str] = Counter()
        self._seconds = seconds
        self._until_ms = server.clock.wall_ms() + seconds * 1000

    def play(self) -> list[Anomaly]:
        """Run all clients for this time. Return the anomalies of their history."""
        client = self.server.connect()
        for _ in _answered(client, _log_in()):
            pass
        self.work.create(client, TOPIC, PARTITIONS)
        self.work.create(client, groups.MOVED, groups.MOVED_PARTITIONS)
        self.work.create(client, PASSING, 1)
        client.call(_ten_minutes(), 1)
        client.call(groups.share_from_the_beginning(), 1)
        for group in (groups.CLASSIC, groups.CONSUMER):
            # An empty group without offsets is deleted, and its epochs start again.
            client.call(_commit(group, PASSING), 4)
        scripts = {name: _logged_in(script) for name, script in self._scripts().items()}
        drive(self.server, scripts, self.work.choose, limit_s=self._seconds + 3 * HOUR_MS / 1000)
        left_ms = self._until_ms - self.server.clock.wall_ms()
        self.server.run_ms(max(0, left_ms))
        return self.work.anomalies()

    def _scripts(self) -> dict[str, Ask]:
        scripts: dict[str, Ask] = {}
        for number in (1, 2, 3):
            members: list[groups.Owner | groups.Sharer] = [
                groups.Classic(self.work, f"classic-{number}"),
                groups.Consumer(self.work, f"consumer-{number}"),
                groups.Sharer(self.work, f"share-{number}", TOPIC, PARTITIONS),
            ]
            scripts |= {member.process: self._visits(member) for member in members}
        others = {
            "records": self._records(), "transactions": self._transactions(),
            "tokens": self._tokens(), "offsets": self._offsets(),
        }  # fmt: skip
        return scripts | others

    def _goes_on(self) -> bool:
        return self.server.clock.wall_ms() < self._until_ms

    def _visits(self, member: Any) -> Ask:
        """Join and leave again and again."""
        while self._goes_on():
            yield from member.run(3)
            yield self.work.choose.randrange(HOUR_MS // 3)

    def _records(self) -> Ask:
        """Write to a topic that keeps its records for ten minutes, and read this topic and another one."""
        number = 0
        while self._goes_on():
            number += 1
            yield produce_request(0, b"x", topic=PASSING), 9
            yield from idempotent(self.work, f"send-{number}", 1)
            yield from consumer(self.work, f"poll-{number}", 2)
            yield self.work.choose.randrange(HOUR_MS // 2)
            topic = list_offsets.ListOffsetsTopic(PASSING, [list_offsets.ListOffsetsPartition(0, timestamp=_EARLIEST)])
            found = yield list_offsets.ListOffsetsRequest(-1, topics=[topic]), 7
            self.seen["records"] = found.topics[0].partitions[0].offset

    def _transactions(self) -> Ask:
        """Leave transactions open. The producer of each is fenced when its time is over."""
        while self._goes_on():
            mine = yield from new_producer("txn")
            producer = "txn", mine.producer_id, mine.producer_epoch
            steps: list[Any] = [
                ["send", partition_name(TOPIC, each), next(self.work.values)] for each in range(PARTITIONS)
            ]
            with self.work.record.operation("txn", "txn", steps) as call:
                yield from written(producer, steps)
                yield HOUR_MS // 4
                ended = yield end_txn.EndTxnRequest(*producer, True), 3
                if ended.error_code:
                    call.fail()
                    self.seen["transactions"] += 1
            yield self.work.choose.randrange(HOUR_MS)

    def _tokens(self) -> Ask:
        """Create a token for a quarter of an hour, and check that it has ended after another."""
        while self._goes_on():
            request = create_delegation_token.CreateDelegationTokenRequest(None, None, [], HOUR_MS // 4)
            made = yield request, 3
            before = yield describe_delegation_token.DescribeDelegationTokenRequest(None), 3
            yield HOUR_MS // 2
            after = yield describe_delegation_token.DescribeDelegationTokenRequest(None), 3
            ids = [{each.token_id for each in one.tokens} for one in (before, after)]
            self.seen["tokens"] += made.token_id in ids[0] - ids[1]
            yield self.work.choose.randrange(HOUR_MS)

    def _offsets(self) -> Ask:
        """Commit offsets that are kept for a quarter of an hour."""
        for number in range(10_000):
            if not self._goes_on():
                return
            name = f"gone-{number}"
            yield _commit(name, TOPIC, HOUR_MS // 4), 4
            offsets = []
            for _ in range(2):
                topic = offset_fetch.OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])
                wanted = offset_fetch.OffsetFetchRequestGroup(name, topics=[topic])
                found = yield offset_fetch.OffsetFetchRequest(groups=[wanted]), 8
                offsets.append(found.groups[0].topics[0].partitions[0].committed_offset)
                yield HOUR_MS // 2
            self.seen["offsets"] += offsets == [7, -1]


def _commit(group: str, topic: str, retention_time_ms: int = -1) -> Any:
    partition = offset_commit.OffsetCommitRequestPartition(0, 7)
    topics = [offset_commit.OffsetCommitRequestTopic(topic, partitions=[partition])]
    return offset_commit.OffsetCommitRequest(group, -1, "", retention_time_ms=retention_time_ms, topics=topics)


def _ten_minutes() -> Any:
    configs = {"retention.ms": 10 * MINUTE_MS, "segment.ms": MINUTE_MS}
    entries = [incremental_alter_configs.AlterableConfig(name, 0, str(value)) for name, value in configs.items()]
    resource = incremental_alter_configs.AlterConfigsResource(_TOPIC_RESOURCE, PASSING, entries)
    return incremental_alter_configs.IncrementalAlterConfigsRequest([resource])


def _log_in() -> Ask:
    yield SaslHandshakeRequest("PLAIN"), 1
    yield SaslAuthenticateRequest(plain(_OWNER, "secret")), 2


def _logged_in(script: Ask) -> Ask:
    yield from _log_in()
    yield from script


def _answered(client: Any, script: Ask) -> Iterator[Any]:
    for request, version in script:
        yield client.call(request, version)


def days(seconds: int, seed: int = 1) -> tuple[Counter[str], list[Anomaly], str]:
    """Play this number of simulated seconds. Return what has expired, the anomalies, and the digest of the run."""
    os.environ[KEY] = "a key for tests"
    with SimulatedServer(SETTINGS, seed=seed) as server:
        run = Days(server, seed, seconds)
        found = run.play()
        return run.seen, found, server.fingerprint()


if __name__ == "__main__":
    started_s = time.process_time()
    ended, anomalies, _digest = days(int(sys.argv[1]))
    print(dict(ended), f"{len(anomalies)} anomalies,", f"{time.process_time() - started_s:.1f} s of processor time")
