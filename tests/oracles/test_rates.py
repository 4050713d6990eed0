"""Compares `Rate` and `TokenBucket` with Kafka's own classes, for the actions of clients over some windows."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from klamm.runtime import Rate, TokenBucket
from klamm.runtime.rates import MAX_THROTTLE_TIME_MS
from tests.peers.kafka_jars import classpath

pytestmark = pytest.mark.interop

# Kafka's bucket fills from the epoch on. klamm's is full at first.
START_MS = 10**9
CASES = 300


def case(rng: random.Random) -> tuple[int, int, float, list[tuple[int, float | None]]]:
    samples, window_ms = rng.choice([(11, 1000), (11, 1000), (1, 1000), (2, 500), (5, 2000)])
    bound = rng.choice([1.0, 10.0, 1_000_000.0, 12.5])
    now_ms = START_MS
    events: list[tuple[int, float | None]] = []
    for _ in range(rng.randrange(1, 60)):
        now_ms += rng.choice([0, 1, rng.randrange(window_ms), window_ms, rng.randrange(4 * window_ms)])
        if rng.random() < 0.02:
            now_ms += 2 * samples * window_ms
        value = rng.choice([1.0, float(rng.randrange(1, 10**7)), rng.random() * 100, -1.0])
        events.append((now_ms, None if rng.random() < 0.3 else value))
    return samples, window_ms, bound, events


def test_rates_throttle_times_and_tokens_are_kafkas(tmp_path: Path) -> None:
    source = Path(__file__).parent / "java" / "QuotaOracle.java"
    subprocess.run(["javac", "-cp", classpath(), "-d", str(tmp_path), str(source)], check=True, timeout=120)
    rng = random.Random(612)
    cases = [case(rng) for _ in range(CASES)]
    lines = [
        f"{samples} {window_ms} {bound} "
        + " ".join(f"{now_ms}" if value is None else f"{now_ms}:{value}" for now_ms, value in events)
        for samples, window_ms, bound, events in cases
    ]
    command = ["java", "-cp", f"{tmp_path}:{classpath()}", "QuotaOracle"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120, check=True)
    for (samples, window_ms, bound, events), line in zip(cases, done.stdout.splitlines(), strict=True):
        rate, bucket = Rate(samples, window_ms), TokenBucket(samples, window_ms)
        for (now_ms, value), answer in zip(events, line.split(), strict=True):
            if value is not None:
                rate.record(value, now_ms)
                bucket.take(value, bound, now_ms)
            expected_rate, throttle_time_ms, tokens = answer.split("/")
            assert rate.measure(now_ms) == pytest.approx(float(expected_rate), rel=1e-9, abs=1e-6)
            # Kafka later casts the value to an int, which may overflow.
            java_ms = min(int(throttle_time_ms), MAX_THROTTLE_TIME_MS)
            assert abs(rate.throttle_time_ms(bound, now_ms) - java_ms) <= 1
            assert bucket.tokens(bound, now_ms) == pytest.approx(float(tokens), rel=1e-9, abs=1e-6)
