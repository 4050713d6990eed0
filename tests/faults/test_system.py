"""Events in the system of a server: a full disk, a clock that jumps, settings that are read again."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.frames import record_batch
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.runtime.clock import SystemClock
from klamm.server.server import SocketServer
from klamm.testing import RawClient
from klamm.wire.errors import ErrorCode
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.sync_group import SyncGroupRequest
from tests.faults.bystander import unharmed
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server
from tests.peers.target import TARGET, target_server
from tests.peers.wire_client import WireClient
from tests.waiting import is_readable, wait_until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(180),
    pytest.mark.skipif(TARGET != "klamm", reason="looks into what only klamm promises"),
]
MIB = 1 << 20
BATCH = record_batch(1, 400_000)


def create(client: WireClient | RawClient, topic: str) -> None:
    assert client.call(CreateTopicsRequest([CreatableTopic(topic, 1, 1)]), 5).topics[0].error_code == ErrorCode.NONE


def produce(client: WireClient | RawClient, topic: str, batch: bytes = BATCH) -> ErrorCode:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    answer = client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def fetch(topic: str, offset: int, max_wait_ms: int = 100) -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=MIB)
    topics = [FetchTopic(topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=MIB, topics=topics)


def fetched_bytes(client: WireClient | RawClient, topic: str, offset: int) -> int:
    answer = client.call(fetch(topic, offset), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    return len(bytes(answer.responses[0].partitions[0].records or b""))


@contextmanager
def files_no_larger_than(server: Server, size_bytes: int) -> Iterator[None]:
    """Limit the size of files during the block, so that larger writes fail as on a full disk."""
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size_bytes, unlimited))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))


def fill_until_refused(client: WireClient, topic: str) -> int:
    """Produce until a batch is refused with the error for a full disk. Return the number of accepted batches."""
    for taken in range(200):
        code = produce(client, topic)
        if code is not ErrorCode.NONE:
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            return taken
    raise AssertionError("nothing is refused")


def test_a_log_that_cannot_grow(tmp_path: Path) -> None:
    """Producers get an error, acknowledged records stay readable, and producing works again once there is room."""
    with target_server(tmp_path / "server") as server, WireClient(HOST, server.port) as client:
        create(client, "full")
        with unharmed(server):
            # Apache Kafka's indexes have 10 MiB from the beginning.
            with files_no_larger_than(server, 12 * MIB):
                taken = fill_until_refused(client, "full")
                assert taken > 20
                assert produce(client, "full") is ErrorCode.KAFKA_STORAGE_ERROR
                assert fetched_bytes(client, "full", taken - 1) > 400_000
                client.call(MetadataRequest(None), 12)
            assert produce(client, "full") is ErrorCode.NONE
            assert fetched_bytes(client, "full", taken) > 400_000
        server.restart()
    with target_server(tmp_path / "server") as server, WireClient(HOST, server.port) as client:
        assert fetched_bytes(client, "full", taken) > 400_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 24 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("only root may mount, and not everywhere")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def fill_up(path: Path) -> None:
    """Fill the file system to its last page."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def commit(client: WireClient, topic: str, member: tuple[str, int], offset: int) -> ErrorCode:
    """Commit an offset of the group `g`."""
    member_id, generation = member
    topics = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, offset)])]
    answer = client.call(OffsetCommitRequest("g", generation, member_id, topics=topics), 8)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(client: WireClient, topic: str) -> int:
    """Return the committed offset of the group `g`."""
    answer = client.call(OffsetFetchRequest("g", [OffsetFetchRequestTopic(topic, [0])]), 7)
    assert answer.error_code == ErrorCode.NONE
    return int(answer.topics[0].partitions[0].committed_offset)


def set_quota(client: WireClient | RawClient, bytes_per_second: float, client_id: str = "one") -> ErrorCode:
    """Set the byte rate at which a client may produce."""
    entity = [RequestEntityData("client-id", client_id)]
    operations = [OpData("producer_byte_rate", bytes_per_second)]
    answer = client.call(AlterClientQuotasRequest([RequestEntryData(entity, operations)]), 1)
    return ErrorCode(answer.entries[0].error_code)


def quotas(client: WireClient) -> list[float]:
    """Return all quotas that are set."""
    answer = client.call(DescribeClientQuotasRequest([], strict=False), 1)
    return [value.value for entry in answer.entries or [] for value in entry.values]


def test_broker_survives_a_full_disk(small_disk: Path) -> None:
    """Test a full file system, which also has the store of topics, offsets and quotas."""
    ballast = small_disk / "ballast"
    with target_server(small_disk / "server") as server, WireClient(HOST, server.port) as client:
        create(client, "full")
        member = joined(client)
        assert commit(client, "full", member, 1) is ErrorCode.NONE
        assert set_quota(client, 1e9) is ErrorCode.NONE
        with unharmed(server):
            ballast.write_bytes(bytes(4 * MIB))
            taken = fill_until_refused(client, "full")
            fill_up(small_disk / "more")
            answer = client.call(CreateTopicsRequest([CreatableTopic("another", 1, 1)]), 5)
            assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
            assert fetched_bytes(client, "full", taken - 1) > 400_000
            # Kafka's coordinators give the same answer if their log cannot be written, and clients try again.
            assert commit(client, "full", member, 2) is ErrorCode.NOT_COORDINATOR
            assert committed(client, "full") == 1
            assert set_quota(client, 2e9) is ErrorCode.KAFKA_STORAGE_ERROR
            assert quotas(client) == [1e9]
            joining = JoinGroupRequest("h", session_timeout_ms=30_000, protocol_type="consumer")
            joining.protocols, joining.rebalance_timeout_ms = [JoinGroupRequestProtocol("range", b"")], 30_000
            assert client.call(joining, 5).error_code == ErrorCode.MEMBER_ID_REQUIRED
            heartbeat = HeartbeatRequest(group_id="g", member_id=member[0], generation_id=member[1])
            assert client.call(heartbeat, 4).error_code == ErrorCode.NONE
            ballast.unlink()
            (small_disk / "more").unlink()
            wait_until(lambda: produce(client, "full") is ErrorCode.NONE, "it does not recover")
            create(client, "later")
            assert commit(client, "full", member, 3) is ErrorCode.NONE
            assert set_quota(client, 3e9) is ErrorCode.NONE
            joined(client, "h")
        server.restart()
        with WireClient(HOST, server.port) as again:
            assert fetched_bytes(again, "full", taken - 1) > 400_000
            assert committed(again, "full") == 3
            assert quotas(again) == [3e9]


def test_no_file_can_be_opened(tmp_path: Path) -> None:
    """Requests that need a descriptor are refused while there is none. Connected clients are served, and no data is
    lost.
    """
    with target_server(tmp_path / "server") as server, WireClient(HOST, server.port) as client:
        small = CreatableTopic("small", 1, 1, configs=[CreatableTopicConfig("segment.bytes", str(MIB))])
        assert client.call(CreateTopicsRequest([small]), 5).topics[0].error_code == ErrorCode.NONE
        member = joined(client)
        limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        # A log is opened at its first use.
        assert produce(client, "small") is ErrorCode.NONE
        # The modules of an API are opened at its first request.
        assert commit(client, "small", member, 0) is ErrorCode.NONE
        assert committed(client, "small") == 0
        assert fetched_bytes(client, "small", 0) > 400_000
        taken = 1
        with unharmed(server):
            used = len(os.listdir(f"/proc/{server.pid}/fd"))
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used, limits[1]))
            while (code := produce(client, "small")) is ErrorCode.NONE:
                taken += 1
                assert taken < 20, "a segment is rolled without a file"
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert taken >= 2
            # A topic is a row in the store. Its log needs files at the first record at the latest.
            create(client, "another")
            assert produce(client, "another") is ErrorCode.KAFKA_STORAGE_ERROR
            offset = int(commit(client, "small", member, 1) is ErrorCode.NONE)
            assert max(0, committed(client, "small")) == offset
            assert fetched_bytes(client, "small", taken - 1) > 400_000
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
            wait_until(lambda: produce(client, "small") is ErrorCode.NONE, "it does not recover")
        assert commit(client, "small", member, 2) is ErrorCode.NONE
        assert produce(client, "another") is ErrorCode.NONE
        server.restart()
        with WireClient(HOST, server.port) as again:
            for place in range(taken + 1):
                assert fetched_bytes(again, "small", place) > 400_000
            assert committed(again, "small") == 2
            assert fetched_bytes(again, "another", 0) > 400_000


class JumpingClock(SystemClock):
    """The machine's clocks, with a wall clock that can jump."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def test_broker_survives_a_clock_that_jumps(tmp_path: Path) -> None:
    """Let the clock jump back and ahead by a day. Sessions continue, records are appended and found, waiting requests
    are answered at the right time, and the server stops in good order.
    """
    clock = JumpingClock()
    throttled = ["listeners.default.throttles=client_quota"]
    plan = load_plan(None, PluginRegistry(), throttled, bind=f"{HOST}:0", data_dir=str(tmp_path))
    server = SocketServer(plan, clock=clock)
    server.start()
    try:
        bound = server.listeners[0].context.bound
        address = (bound.host, bound.port)
        with (
            RawClient(address) as client,
            RawClient(address, timeout_s=30) as parked,
            RawClient(address, timeout_s=30) as waiting,
            RawClient(address, timeout_s=30, client_id="muted") as muted,
        ):
            create(client, "t")
            create(client, "quiet")
            member_id, generation = joined(client)
            parked_id = parked.send(fetch("quiet", 0, max_wait_ms=60_000), 12)
            assert set_quota(client, 10_000, "muted") is ErrorCode.NONE
            data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, record_batch(1, 120_000))])]
            muted_s = muted.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9).throttle_time_ms / 1000
            assert 1 < muted_s < 10
            muted_at = time.monotonic()
            muted_id = muted.send(MetadataRequest([], allow_auto_topic_creation=False), 12)
            waiting_at = time.monotonic()
            waiting_id = waiting.send(fetch("quiet", 0, max_wait_ms=1000), 12)
            for jump_ms in (0, -86_400_000, 86_400_000, -3_600_000):
                clock.ahead_ms = jump_ms
                assert produce(client, "t", record_batch(1, 100)) is ErrorCode.NONE
                heartbeat = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation)
                assert client.call(heartbeat, 4).error_code == ErrorCode.NONE
            waiting.receive(1, 12, waiting_id)
            assert 0.9 < time.monotonic() - waiting_at < 5
            muted.receive(3, 12, muted_id)
            assert 0.9 * muted_s < time.monotonic() - muted_at < muted_s + 4
            assert not is_readable(parked.socket)
            assert produce(client, "quiet", record_batch(1, 100)) is ErrorCode.NONE
            assert parked.receive(1, 12, parked_id).responses[0].partitions[0].records
            assert fetched_bytes(client, "t", 0) > 400
            fired = threading.Event()
            server.scheduler.schedule(10, fired.set)
            assert fired.wait(60)
    finally:
        begin = time.monotonic()
        server.stop()
    assert time.monotonic() - begin < 10


def joined(client: WireClient | RawClient, group_id: str = "g") -> tuple[str, int]:
    """Join a group as its only member. Return the member id and the generation."""
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest(group_id, session_timeout_ms=30_000, protocol_type="consumer", protocols=protocols)
    join.rebalance_timeout_ms = 30_000
    answer = client.call(join, 5)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        join.member_id = answer.member_id
        answer = client.call(join, 5)
    assert answer.error_code == ErrorCode.NONE
    sync = SyncGroupRequest(group_id, generation_id=answer.generation_id, member_id=answer.member_id)
    assert client.call(sync, 3).error_code == ErrorCode.NONE
    return answer.member_id, answer.generation_id


class FileServer(KlammServer):
    """A server that reads its settings from a file, which the test changes."""

    @property
    def file(self) -> Path:
        return self.directory / "klamm.toml"

    def write_settings(self, io_threads: int, processors: int) -> None:
        text = f"[server]\nio_threads = {io_threads}\n[listeners.default]\nprocessors = {processors}\n"
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(self.file)

    def command(self) -> list[str]:
        command = super().command()
        position = command.index("serve") + 1
        return [*command[:position], str(self.file), *command[position:]]


def test_sighup_under_load(tmp_path: Path) -> None:
    """Read settings again and again, so that handlers and processors come and go. Every request gets the right
    answer.
    """
    server = FileServer(tmp_path / "server")
    server.write_settings(2, 1)
    failures: list[BaseException] = []
    counts = [0] * 6
    stopping = threading.Event()

    def load(number: int) -> None:
        try:
            with RawClient((HOST, server.port), timeout_s=30) as client:
                topic = f"t-{number}"
                create(client, topic)
                while not stopping.is_set():
                    assert produce(client, topic, record_batch(1, 5000)) is ErrorCode.NONE
                    assert fetched_bytes(client, topic, counts[number]) > 5000
                    counts[number] += 1
        except BaseException as error:
            failures.append(error)

    with server:
        threads = [threading.Thread(target=load, args=(number,)) for number in range(len(counts))]
        for thread in threads:
            thread.start()
        with unharmed(server):
            for turn in range(30):
                server.write_settings(1 + turn % 5, 1 + turn % 3)
                os.kill(server.pid, signal.SIGHUP)
                time.sleep(0.05)
        deadline = time.monotonic() + 20
        while server.log_path.read_text().count("reload: done") == 0:
            assert time.monotonic() < deadline, server.log_tail()
            time.sleep(0.05)
        stopping.set()
        for thread in threads:
            thread.join()
        log = server.log_path.read_text()
    assert not failures, failures[0]
    assert min(counts) > 10
    assert "reload: [server] io_threads: " in log
    assert "reload: [listeners.default] processors: " in log
    assert "next start" not in log
