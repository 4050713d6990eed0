"""The cost of a request between its frame and its answer, without sockets.

`python -m bench.pipeline` prints microseconds a request, from the quickest round. The second table has Produce by
codec, and the share of the check of the records. Times are the thread's processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from bench.frames import produce, text_batch
from bench.suites import CODEC_BATCH_BYTES
from klamm import Address, ConnectionContext, RequestOutcome
from klamm.network.runtime import ListenerRuntime
from klamm.requests.ledger import RequestLedger
from klamm.requests.pipeline import RequestPipeline
from klamm.testing import EmbeddedServer
from klamm.wire.compression import Codec
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.records import RecordBatchHeader, read_header
from klamm_broker.log.record_check import check_records
from tests.peers.wire_client import WireClient

REQUESTS = 3_000
ROUNDS = 9
PRODUCES = 300
PRODUCE_ROUNDS = 40
RECORD_BYTES = range(100, 301)
TOPIC = "produced"
SIZE_BYTES = 4


def main() -> None:
    """Print a table."""
    bodies = {"ApiVersions v0": (18, 0, b""), "Metadata v12": (3, 12, MetadataRequest([]).encode(12))}
    print("| | µs |\n| --- | --- |")
    with EmbeddedServer(["listeners.default.gates=[]"]) as server:
        runtime = server.server.listeners[0].runtime
        for name, (api_key, version, body) in bodies.items():
            frames = [
                bytearray(encode_request_header(api_key, version, number, f"client-{number}") + body)
                for number in range(REQUESTS)
            ]
            print(f"| {name} | {quickest_us(runtime, partial(list, frames)):.2f} |")
        print_produce(server, runtime)


def print_produce(server: EmbeddedServer, runtime: ListenerRuntime) -> None:
    """Print the table of Produce: one batch for one partition, of records of 100 to 300 bytes."""
    with WireClient(*server.address()) as client:
        client.call(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)]), 5)
    print(
        "\n| Produce | bytes a batch | µs a request | of these, the check of the records |\n| --- | --- | --- | --- |"
    )
    for codec in Codec:
        batch = text_batch(CODEC_BATCH_BYTES // 210, RECORD_BYTES, codec)
        frame, header = produce(TOPIC, 0, batch).data[SIZE_BYTES:], read_header(batch)
        # Each request needs its own copy, because the log writes offsets into the batch.
        whole_us = quickest_us(runtime, partial(_copies, frame), rounds=PRODUCE_ROUNDS)
        check_us = min(_check_us(batch, header) for _ in range(PRODUCE_ROUNDS))
        print(f"| {codec.name.lower()} | {len(batch):,} | {whole_us:.1f} | {check_us:.1f} |", flush=True)


def _copies(frame: bytes) -> list[bytearray]:
    return [bytearray(frame) for _ in range(PRODUCES)]


def _check_us(batch: bytes, header: RecordBatchHeader) -> float:
    started = time.thread_time()
    for _ in range(PRODUCES):
        check_records(batch, header)
    return (time.thread_time() - started) / PRODUCES * 1e6


def quickest_us(
    runtime: ListenerRuntime,
    frames: Callable[[], Sequence[bytearray]],
    *,
    rounds: int = ROUNDS,
) -> float:
    """Return the microseconds a request in the quickest round. `frames` returns the requests of a round."""
    ledger = RequestLedger(runtime.clock, runtime.context, runtime.new_recorder(), None, None)
    pipeline = RequestPipeline(runtime.requests, ledger, print, print)
    connection = ConnectionContext("c", runtime.context, Address("127.0.0.1", 1), Address("127.0.0.1", 2))
    return min(_round_us(pipeline, connection, frames()) for _ in range(rounds))


def _round_us(pipeline: RequestPipeline, connection: ConnectionContext, frames: Sequence[bytearray]) -> float:
    started = time.thread_time()
    for frame in frames:
        request, _result = pipeline.submit(frame, None, connection, 1)
        if request.received_ns:
            pipeline.end((request,), RequestOutcome.ANSWERED)
        else:
            pipeline.end_untimed(request)
    return (time.thread_time() - started) / len(frames) * 1e6


if __name__ == "__main__":
    main()
