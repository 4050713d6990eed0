"""A script of clients with groups, transactions, faults and passing hours. `python -m` prints the digest of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from klamm.testing import SimulatedClient, SimulatedServer
from klamm.wire.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    end_txn,
    fetch,
    heartbeat,
    init_producer_id,
    join_group,
    metadata,
    produce,
    sync_group,
)
from klamm.wire.records import TRANSACTIONAL, Record, encode_batch

TOPIC = "orders"
OTHERS = ("letters", "parcels", "returns", "stock")
SETTINGS = ("group.coordinator.rebalance.protocols=classic,consumer",)


def create(client: Any, partitions: int = 2, names: Sequence[str] = (TOPIC,)) -> Any:
    """Create the topics."""
    topics = [create_topics.CreatableTopic(name, partitions, 1, [], []) for name in names]
    return client.call(create_topics.CreateTopicsRequest(topics), 7)


def produce_request(
    partition: int, *values: bytes, topic: str = TOPIC, transactional_id: str | None = None, **batch: Any
) -> Any:
    """Return a request with one batch for one partition."""
    records = [Record(value=value, timestamp_ms=1_700_000_000_000) for value in values]
    if transactional_id is not None:
        batch["attributes"] = TRANSACTIONAL
    data = produce.PartitionProduceData(partition, bytes(encode_batch(records, **batch)))
    return produce.ProduceRequest(transactional_id, -1, 1000, [produce.TopicProduceData(topic, partition_data=[data])])


def fetch_request(partition: int, offset: int = 0, max_wait_ms: int = 500, topic: str = TOPIC) -> Any:
    """Return a fetch of committed records."""
    wanted = fetch.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, isolation_level=1, topics=[fetch.FetchTopic(topic, partitions=[wanted])]
    )


def _transaction(client: SimulatedClient, timeout_ms: int, *, committed: bool | None) -> None:
    name = "pay"
    mine = client.call(init_producer_id.InitProducerIdRequest(name, timeout_ms), 4)
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0, 1])
    client.call(
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=mine.producer_id,
            v3_and_below_producer_epoch=mine.producer_epoch,
            v3_and_below_topics=[topic],
        ),
        3,
    )
    for partition in (0, 1):
        batch = {"producer_id": mine.producer_id, "producer_epoch": mine.producer_epoch, "base_sequence": 0}
        client.call(produce_request(partition, b"paid", transactional_id=name, **batch), 9)
    if committed is not None:
        client.call(end_txn.EndTxnRequest(name, mine.producer_id, mine.producer_epoch, committed), 3)


def _join(clients: list[SimulatedClient]) -> None:
    names = ["" for _ in clients]
    for index, client in enumerate(clients):
        names[index] = client.call(_join_request(""), 6).member_id
    sent = [client.send(_join_request(name), 6) for client, name in zip(clients, names, strict=True)]
    joined = [client.receive(11, 6, number) for client, number in zip(clients, sent, strict=True)]
    sent = [
        client.send(
            sync_group.SyncGroupRequest(
                "readers",
                one.generation_id,
                one.member_id,
                assignments=[sync_group.SyncGroupRequestAssignment(each.member_id, b"part") for each in one.members],
            ),
            3,
        )
        for client, one in zip(clients, joined, strict=True)
    ]
    for client, one, number in zip(clients, joined, sent, strict=True):
        client.receive(14, 3, number)
        client.call(heartbeat.HeartbeatRequest("readers", one.generation_id, one.member_id), 3)


def _join_request(member_id: str) -> join_group.JoinGroupRequest:
    protocols = [join_group.JoinGroupRequestProtocol("range", bytes((0, 1, 0, 0, 0, 0, 255, 255, 255, 255)))]
    return join_group.JoinGroupRequest("readers", 10_000, 10_000, member_id, None, "consumer", protocols)


def _beat(client: SimulatedClient, name: str) -> None:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "newer", name, 0, rebalance_timeout_ms=10_000, subscribed_topic_names=[TOPIC, *OTHERS], topic_partitions=[]
    )
    client.call(request, 1)
    client.call(consumer_group_describe.ConsumerGroupDescribeRequest(["newer"]), 1)


def play(server: SimulatedServer) -> None:
    """Run the script."""
    first, second, third = (server.connect() for _ in range(3))
    create(first)
    create(first, names=OTHERS)
    waiting = second.send(fetch_request(0), 12)
    first.call(produce_request(0, b"one", b"two"), 9)
    second.receive(1, 12, waiting)
    _transaction(first, 60_000, committed=True)
    _transaction(second, 60_000, committed=False)
    _join([first, second, third])
    _beat(second, "m" * 22)
    third.send(fetch_request(1, 100), 12)
    third.close()
    for client in (first, second):
        client.send(fetch_request(1, 4), 12)
    fourth = server.connect()
    _transaction(fourth, 5_000, committed=None)
    # Sessions and the open transaction time out.
    server.run_ms(120_000)
    fourth.call(fetch_request(0), 12)
    fourth.call(metadata.MetadataRequest(None), 9)


def run(seed: int) -> str:
    """Run the script on a new server. Return the digest of all its results."""
    with SimulatedServer(SETTINGS, seed=seed) as server:
        play(server)
        return server.fingerprint()


if __name__ == "__main__":
    print(run(int(sys.argv[1])))
