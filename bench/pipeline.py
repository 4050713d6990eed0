"""What a request costs between its frame and its answer, without sockets: the pipeline with and without its cache.

`python -m bench.pipeline` prints the quickest of some rounds, in microseconds a request.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from klamm import Address, ConnectionContext, RequestOutcome
from klamm.network.runtime import ListenerRuntime
from klamm.requests.ledger import RequestLedger
from klamm.requests.pipeline import RequestPipeline
from klamm.requests.response_cache import ResponseCache
from klamm.testing import EmbeddedServer
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.metadata import MetadataRequest

REQUESTS = 3_000
ROUNDS = 9


def main() -> None:
    """Print a table."""
    bodies = {"ApiVersions v0": (18, 0, b""), "Metadata v12": (3, 12, MetadataRequest([]).encode(12))}
    print("| | without a cache, µs | with a cache, µs |\n| --- | --- | --- |")
    with EmbeddedServer(["listeners.default.gates=[]"]) as server:
        runtime = server.server.listeners[0].runtime
        for name, (api_key, version, body) in bodies.items():
            for kind, clients in (("equal", 1), ("different", REQUESTS)):
                frames = [
                    bytearray(encode_request_header(api_key, version, number, f"client-{number % clients}") + body)
                    for number in range(REQUESTS)
                ]
                costs = [quickest_us(runtime, frames, cached=cached) for cached in (False, True)]
                print(f"| {name}, {kind} | " + " | ".join(f"{cost:.2f}" for cost in costs) + " |")


def quickest_us(runtime: ListenerRuntime, frames: Sequence[bytearray], *, cached: bool) -> float:
    """Microseconds a request, in the quickest round."""
    ledger = RequestLedger(runtime.clock, runtime.context, runtime.new_recorder(), None, None)
    cache = ResponseCache(runtime.requests.routes.cacheable) if cached else None
    pipeline = RequestPipeline(runtime.requests, ledger, cache, print, print)
    connection = ConnectionContext("c", runtime.context, Address("127.0.0.1", 1), Address("127.0.0.1", 2))
    return min(_round_us(pipeline, connection, frames) for _ in range(ROUNDS))


def _round_us(pipeline: RequestPipeline, connection: ConnectionContext, frames: Sequence[bytearray]) -> float:
    cache = pipeline.cache
    started = time.perf_counter()
    for frame in frames:
        if cache is not None and cache.find(frame, connection) is not None:
            continue
        request, _result = pipeline.submit(frame, None, connection, 1)
        if request.received_ns:
            pipeline.end((request,), RequestOutcome.ANSWERED)
        else:
            pipeline.end_untimed(request)
    return (time.perf_counter() - started) / len(frames) * 1e6


if __name__ == "__main__":
    main()
