"""Kafka Streams with streams groups: joins, windows, sessions and counts are exact whatever is killed, and when.

`KLAMM_STREAMS_KILLS` says how often the server or an instance is killed.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest

from tests.interop.java_application import create_topics
from tests.interop.streams_application import (
    PATIENCE_S,
    Committed,
    Input,
    StreamsApplication,
    committed,
    compiled,
    produce,
)
from tests.peers.server import Server

KILLS = int(os.environ.get("KLAMM_STREAMS_KILLS", "50"))
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600 + 60 * KILLS)]
KEYS = ["heron", "otter", "perch", "reed", "rush", "teal", "vole"]
EACH = 20
"""Records of each input topic between two kills."""
WINDOW_MS, GAP_MS = 10_000, 5_000
BEGIN_MS = 1_700_000_000_000
MODES = ("tumbling", "sessions", "joins")
Outputs = dict[str, dict[str, list[bytes | None]]]


def inputs(rng: random.Random, count: int) -> list[Input]:
    """Return records whose keys take turns. Their distance is about a session's gap."""
    times = [BEGIN_MS]
    while len(times) < count:
        times.append(times[-1] + rng.choice((100, 700, 1400)))
    return [Input(KEYS[n % len(KEYS)], f"n{n}", at) for n, at in enumerate(times)]


def text(number: int) -> bytes:
    return str(number).encode()


def wanted(output: str, records: list[Input]) -> Outputs:
    """Return the values that the application must write, for each key in order."""
    found: Outputs = {name: {} for name in (output, *(f"{output}-{mode}" for mode in MODES))}
    windows: dict[str, list[bytes | None]] = defaultdict(list)
    sessions: dict[str, list[bytes | None]] = defaultdict(list)
    open_sessions: dict[str, tuple[int, int, int]] = {}
    for key, value, at in records:
        found[output][value] = [(1).to_bytes(8, "big")]
        start = at - at % WINDOW_MS
        window = windows[f"{key}@{start}-{start + WINDOW_MS}"]
        window.append(text(len(window) + 1))
        begin, end, count = open_sessions.get(key, (at, -GAP_MS - 1, 0))
        if at - end <= GAP_MS:
            sessions[f"{key}@{begin}-{end}"].append(None)
        else:
            begin, count = at, 0
        open_sessions[key] = (begin, at, count + 1)
        sessions[f"{key}@{begin}-{at}"].append(text(count + 1))
        found[f"{output}-joins"].setdefault(key, []).append(f"{value}+{value}".encode())
    return found | {f"{output}-tumbling": dict(windows), f"{output}-sessions": dict(sessions)}


def size(outputs: Outputs) -> int:
    return sum(len(values) for keys in outputs.values() for values in keys.values())


def has(reader: Committed, count: int) -> bool:
    return reader.total() >= count


def test_results_are_exact_whatever_is_killed(server: Server, topic: str, tmp_path: Path) -> None:
    outputs = [f"{topic}-counts", *(f"{topic}-counts-{mode}" for mode in MODES)]
    inputs_of = [topic, f"{topic}-other"]
    create_topics(server, *inputs_of, *outputs)
    classes, modes = compiled(tmp_path), ",".join(("counts", *MODES))
    instances = [
        StreamsApplication(server, topic, classes, tmp_path / name, "streams", modes) for name in ("one", "two")
    ]
    rng = random.Random(topic)
    records = inputs(rng, EACH * (KILLS + 1))
    reader = Committed(server, *outputs)
    killed = []
    try:
        for each in instances:
            each.start()
        for number in range(KILLS + 1):
            before = size(wanted(outputs[0], records[: EACH * number]))
            for name in inputs_of:
                produce(server, name, records[EACH * number : EACH * (number + 1)])
            if number == KILLS:
                break
            # The kill happens when the application has work.
            moment = before - rng.randrange(EACH)
            reader.read_until(partial(has, reader, moment))
            chosen = rng.randrange(len(instances) + 1)
            victim = instances[chosen - 1] if chosen else server
            killed.append(victim is server)
            victim.kill9()
            victim.start()
        whole = wanted(outputs[0], records)
        reader.read_until(partial(has, reader, size(whole)))
        for each in instances:
            each.stop(PATIENCE_S)
        assert committed(server, *outputs) == whole
    finally:
        reader.close()
        for each in instances:
            each.kill9()
            print(each.log()[-4000:])
    print(f"{len(killed)} kills, {sum(killed)} of them of the server; {size(whole)} records")
