"""The effect of moving connections away from a hot processor: `python -m bench.hot_processors [--seconds 5]`.

Four heavy connections produce records that the server has to compress, as fast as they can, on the processor's thread.
Sixty light connections request metadata twenty times a second each. They connect in an order in which `round_robin`
puts all heavy ones on one of the two processors. Prints the latency of the light ones, counted from the time when a
request was due, under `round_robin` and under `least_loaded`.
"""

from __future__ import annotations

import argparse
import heapq
import multiprocessing
import selectors
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles

from bench import frames
from bench.suites import create_topic
from klamm.wire.records import Record, encode_batch
from tests.peers.klamm_server import KlammServer
from tests.peers.probe import receive_frame
from tests.peers.server import HOST

HEAVY, LIGHT = 4, 60
LIGHT_INTERVAL_S = 0.05
HEAVY_DEPTH = 2
SETTLE_S = 4.0
TOPIC = "hot"
RECORDS, RECORD_BYTES = 20, 10_000
ASSIGNERS = ("round_robin", "least_loaded")


def produce_for_ever(peers: Sequence[socket.socket], frame: bytes) -> None:
    """Keep several requests in flight on each connection, until the process is killed."""

    def run(peer: socket.socket) -> None:
        for _ in range(HEAVY_DEPTH):
            peer.sendall(frame)
        while True:
            receive_frame(peer)
            peer.sendall(frame)

    threads = [threading.Thread(target=run, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def light_latencies_s(peers: Sequence[socket.socket], frame: bytes, seconds: float) -> list[float]:
    """Send a request per interval on each connection, evenly spread. Latency counts from when the request was due."""
    poller = selectors.DefaultSelector()
    begin = time.monotonic()
    due = [(begin + LIGHT_INTERVAL_S * number / len(peers), number) for number in range(len(peers))]
    asked: dict[int, float] = {}
    latencies = []
    for number, peer in enumerate(peers):
        poller.register(peer, selectors.EVENT_READ, number)
    while (now := time.monotonic()) < begin + seconds:
        while due and due[0][0] <= now:
            at, number = heapq.heappop(due)
            asked[number] = at
            peers[number].sendall(frame)
        wait_s = due[0][0] - now if due else 1.0
        for key, _ in poller.select(wait_s):
            receive_frame(peers[key.data])
            at = asked.pop(key.data)
            latencies.append(time.monotonic() - at)
            heapq.heappush(due, (at + LIGHT_INTERVAL_S, key.data))
    for number in asked:
        receive_frame(peers[number])
    return latencies


def measure(assigner: str, directory: Path, seconds: float) -> list[float]:
    """Return the latencies of the light connections in seconds, measured after connections had time to move."""
    settings = {
        "listeners.default.processors": "2",
        "listeners.default.dispatch": "inline",
        "listeners.default.assigner": assigner,
        "num.partitions": "3",
        "compression.type": "gzip",
    }
    with KlammServer(directory / assigner, settings) as server:
        create_topic(server, TOPIC)
        heavy: list[socket.socket] = []
        light: list[socket.socket] = []
        while len(heavy) + len(light) < HEAVY + LIGHT:
            kind = heavy if len(heavy) < HEAVY and len(heavy) == len(light) else light
            kind.append(socket.create_connection((HOST, server.port), 10))
            # The order of arrival decides the processor of a connection.
            kind[-1].sendall(frames.metadata(TOPIC).data)
            receive_frame(kind[-1])
        batch = encode_batch([Record(value=bytes(RECORD_BYTES))] * RECORDS)
        produce = frames.produce(TOPIC, 0, batch).data
        child = multiprocessing.get_context("fork").Process(target=produce_for_ever, args=(heavy, produce), daemon=True)
        child.start()
        try:
            light_latencies_s(light, frames.metadata(TOPIC).data, SETTLE_S)
            return light_latencies_s(light, frames.metadata(TOPIC).data, seconds)
        finally:
            child.kill()
            child.join()
            for peer in (*heavy, *light):
                peer.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_processors", description="Light beside heavy")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    print("| assigner | requests/s of the light | p50, ms | p99, ms | max, ms |\n| --- | --- | --- | --- | --- |")
    for number in range(chosen.rounds):
        for assigner in ASSIGNERS:
            with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
                latencies = measure(assigner, Path(directory), chosen.seconds)
            cuts = quantiles(latencies, n=100)
            numbers = [1000 * value for value in (cuts[49], cuts[98], max(latencies))]
            cells = " | ".join(f"{value:.2f}" for value in numbers)
            print(f"| {assigner} ({number + 1}) | {len(latencies) / chosen.seconds:,.0f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
