"""Steps of transactions. The outcomes of each step are compared between two servers.

Steps wait for outcomes that come later on one server: Kafka answers EndTxn before the transaction is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from klamm import ErrorCode
from klamm.wire.messages import fetch, list_offsets
from klamm.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from klamm.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.list_transactions import ListTransactionsRequest
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from klamm.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.peers.wire_client import WireClient
from tests.unit.transactions.transactions_harness import GROUP, Producer

Step = tuple[str, Any]
TRANSIENT = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
PATIENCE_S = 20


class Asker:
    """A connection to a server, in the form that `Producer` calls."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def ask(self, request: Any, version: int) -> Any:
        return self._client.call(request, version)


def settled(attempt: Callable[[], Any]) -> int:
    """Repeat an attempt until its error code is not temporary, or until time is up. Return the code."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        outcome = attempt()
        code = outcome if isinstance(outcome, int) else outcome.error_code
        if code not in TRANSIENT or time.monotonic() > deadline:
            return int(code)
        time.sleep(0.02)


class Steps:
    """The steps on one server. `t`, `u`, `whole-3` and `whole-5` are topics of one partition."""

    def __init__(self, client: WireClient) -> None:
        self._asker: Any = Asker(client)

    def _producer(self, name: str, timeout_ms: int = 60_000) -> Producer:
        return Producer(self._asker, name, timeout_ms)

    def _state(self, name: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (found,) = self._asker.ask(DescribeTransactionsRequest([name]), 0).transaction_states
            if not found.transaction_state.startswith("Prepare") or time.monotonic() > deadline:
                return str(found.transaction_state or found.error_code)
            time.sleep(0.02)

    def _ends(self, topic: str) -> tuple[int, int]:
        wanted = [list_offsets.ListOffsetsTopic(topic, [list_offsets.ListOffsetsPartition(0, timestamp=-1)])]
        latest, stable = (self._asker.ask(list_offsets.ListOffsetsRequest(-1, level, wanted), 7) for level in (0, 1))
        return latest.topics[0].partitions[0].offset, stable.topics[0].partitions[0].offset

    def _aborted(self, topic: str) -> list[int]:
        topics = [
            fetch.FetchTopic(topic, partitions=[fetch.FetchPartition(0, fetch_offset=5, partition_max_bytes=1 << 20)])
        ]
        request = fetch.FetchRequest(replica_id=-1, max_wait_ms=0, isolation_level=1, topics=topics, session_epoch=-1)
        data = self._asker.ask(request, 12).responses[0].partitions[0]
        return [each.first_offset for each in data.aborted_transactions or ()]

    def _committed(self, topic: str, *, stable: bool = True) -> tuple[int, int]:
        wanted = [OffsetFetchRequestTopics(topic, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=wanted)], require_stable=stable)
        (found,) = self._asker.ask(request, 8).groups[0].topics[0].partitions
        return found.error_code, found.committed_offset

    def run(self) -> Iterator[Step]:
        """Run the steps. Return each step with its outcome."""
        yield from self._producers()
        for version in (3, 5):
            yield from self._whole(version)
        yield from self._refused()
        yield from self._offsets()
        yield from self._markers()
        yield from self._lists()

    def _producers(self) -> Iterator[Step]:
        producer = self._producer("p")
        for version in range(6):
            yield f"init v{version}", (settled(lambda version=version: producer.init(version)), producer.epoch)
        yield "goes on", (producer.go_on(), producer.epoch)
        producer.epoch -= 1
        yield "goes on again", (producer.go_on(), producer.epoch)
        producer.epoch -= 2
        yield "goes on fenced", producer.go_on()
        yield "goes on fenced, v3", producer.go_on(3)
        producer.id += 1000
        yield "goes on as another", producer.go_on()
        for timeout_ms in (0, -1, 900_001):
            yield f"timeout {timeout_ms}", self._producer("q", timeout_ms).init()
        for name, producer_id, epoch in (("", -1, -1), ("q", 5, -1), ("q", -1, 5)):
            request = InitProducerIdRequest(name, 1000, producer_id, epoch)
            yield f"init {name!r} {producer_id} {epoch}", self._asker.ask(request, 4).error_code

    def _whole(self, version: int) -> Iterator[Step]:
        produce_version = 12 if version >= 5 else 11
        name, topic = f"w{version}", f"whole-{version}"
        producer = self._producer(name)
        yield "init", settled(producer.init)
        for round_, committed in enumerate((True, False, True)):
            if version < 5:
                yield "add", settled(lambda: producer.add((topic, 0))[0])
            for each in range(2):
                result = settled(lambda: producer.produce(topic, b"a", b"b", version=produce_version))
                yield f"produce {round_} {each}", (result, self._ends(topic), self._state(name))
            request = producer.end_request(committed=committed)
            yield f"end {round_}", (producer.end(committed=committed, version=version), producer.epoch)
            yield f"state {round_}", (self._state(name), self._ends(topic), self._aborted(topic))
            yield f"end {round_} again", self._asker.ask(request, version).error_code
            request.committed = not committed
            yield f"end {round_} the other way", self._asker.ask(request, version).error_code
        for committed in (True, False):
            yield f"end nothing {committed}", (producer.end(committed=committed, version=version), producer.epoch)
            yield "state", self._state(name)
        (described,) = self._asker.ask(DescribeProducersRequest([TopicRequest(topic, [0])]), 0).topics
        (state,) = described.partitions[0].active_producers
        yield "producer", (state.producer_epoch, state.last_sequence, state.current_txn_start_offset)
        if version < 5:
            producer.add((topic, 0))
        yield "open", producer.produce(topic, b"open", version=produce_version).error_code
        fencing = self._producer(name)
        yield "fence", (settled(fencing.init), fencing.epoch, fencing.id == producer.id)
        yield "fenced", producer.produce(topic, b"late", version=produce_version).error_code
        yield "fenced end", producer.end(committed=True, version=version)
        yield "fenced end, v1", producer.end(committed=True, version=1)
        yield "ends", self._ends(topic)

    def _refused(self) -> Iterator[Step]:
        producer = self._producer("r")
        producer.init()
        for version in (3, 10, 11):
            yield f"not added v{version}", producer.produce("t", b"a", version=version).error_code
        yield "unknown partitions", producer.add(("t", 0), ("t", 9), ("none", 0))
        yield "internal topic", producer.add(("t", 0), ("__consumer_offsets", 0))
        yield "unknown topic", producer.produce("none", b"a").error_code
        unknown = self._producer("unknown")
        unknown.id, unknown.epoch = producer.id, producer.epoch
        for version in (11, 12):
            yield f"unknown id v{version}", unknown.produce("t", b"a", version=version).error_code
        yield "unknown id, add", unknown.add(("t", 0))
        yield "unknown id, end", [unknown.end(committed=True, version=version) for version in (1, 2, 5)]
        producer.epoch += 1
        for version in (11, 12):
            yield f"other epoch v{version}", producer.produce("t", b"a", version=version).error_code
        yield "other epoch, add", [producer.add(("t", 0), version=version) for version in (1, 2, 3)]
        yield "other epoch, end", [producer.end(committed=True, version=version) for version in (1, 2, 4, 5)]
        yield "other epoch, offsets", (producer.add_offsets(), producer.commit_offset("t", 1, 4))
        producer.id += 1
        yield "other producer, add", producer.add(("t", 0))
        yield "other producer, end", [producer.end(committed=True, version=version) for version in (1, 2, 4, 5)]
        topics = [AddPartitionsToTxnTopic("t", [0])]
        for verify in (True, False):
            wanted = [AddPartitionsToTxnTransaction("r", producer.id - 1, producer.epoch - 1, verify, topics)]
            (result,) = self._asker.ask(AddPartitionsToTxnRequest(wanted), 5).results_by_transaction
            yield f"of brokers, verify {verify}", result.topic_results[0].results_by_partition[0].partition_error_code

    def _offsets(self) -> Iterator[Step]:
        producer = self._producer("o")
        producer.init()
        yield "group not added", [settled(lambda v=v: producer.commit_offset("t", 1, v)) for v in (3, 4)]
        for number, (version, committed) in enumerate(((3, True), (5, False), (5, True))):
            if version < 5:
                yield "add offsets", settled(producer.add_offsets)
            yield f"commit {number}", settled(lambda n=number, v=version: producer.commit_offset("t", 10 + n, v))
            yield "unstable", (self._committed("t"), self._committed("t", stable=False)[1])
            yield "unknown partition", producer.commit_offset("none", 1)
            yield f"end {number}", producer.end(committed=committed)
            yield "state", self._state("o")
            yield "committed", settled(lambda: self._committed("t")[0]) or self._committed("t")
        yield "empty group", producer.commit_offset("t", 1, 5, group="")

    def _markers(self) -> Iterator[Step]:
        producer = self._producer("m")
        for _ in range(3):
            producer.init()
        producer.produce("u", b"a")

        def write(topic: str, epoch: int, coordinator_epoch: int = 0) -> int:
            marker = WritableTxnMarker(
                producer.id, epoch, False, [WritableTxnMarkerTopic(topic, [0])], coordinator_epoch
            )
            (result,) = self._asker.ask(WriteTxnMarkersRequest([marker]), 1).markers
            return int(result.topics[0].partitions[0].error_code)

        yield "old epoch", write("u", producer.epoch - 1)
        yield "unknown topic", write("none", producer.epoch)
        yield "ends before", self._ends("u")
        yield "abort", write("u", producer.epoch, 7)
        yield "old coordinator", write("u", producer.epoch, 6)
        yield "ends", self._ends("u")

    def _lists(self) -> Iterator[Step]:
        def listed(version: int = 2, **filters: Any) -> Any:
            answer = self._asker.ask(ListTransactionsRequest(**filters), version)
            found = sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)
            return answer.error_code, answer.unknown_state_filters, found

        for filters in (
            {},
            {"state_filters": ["Ongoing"]},
            {"state_filters": ["Nonsense", "Empty"]},
            {"state_filters": ["Nonsense"]},
            {"state_filters": ["ongoing"]},
            {"producer_id_filters": [987_654]},
            {"state_filters": ["Ongoing"], "duration_filter": 3_600_000},
            {"transactional_id_pattern": "w.*"},
            {"transactional_id_pattern": "w"},
            {"transactional_id_pattern": ""},
            {"transactional_id_pattern": "("},
        ):
            yield f"list {filters}", listed(**filters)
        for name in ("", "none"):
            yield f"describe {name!r}", self._state(name)
