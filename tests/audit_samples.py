"""Sample events like those of a busy server, for tests, benchmarks and experiments.

`python -m tests.audit_samples SPOOL --events 100000` writes them as a spool of sealed segments.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from klamm_spark.events.event import (
    ADMIN,
    AUDIT_GAP,
    AUTHENTICATION,
    CONNECTION,
    REQUEST,
    RESOURCE_FIELDS,
    SCHEMA_VERSION,
)
from klamm_spark.events.line_order import LINE_ORDER, OTHER_ORDER
from klamm_spark.spool.layout import (
    NO_CHAIN,
    SEAL_SUFFIX,
    SEALED_SUFFIX,
    Seal,
    SegmentName,
    chain_of,
    day_of,
    digests_of,
    lines_sha256,
    segment_files,
)

_APIS: Final = (
    (0, "Produce", 11),
    (1, "Fetch", 17),
    (3, "Metadata", 12),
    (12, "Heartbeat", 4),
    (8, "OffsetCommit", 9),
    (19, "CreateTopics", 7),
)
_SOFTWARE: Final = (
    ("apache-kafka-java", "4.3.1"),
    ("librdkafka", "2.8.0"),
    ("librdkafka", "1.6.1"),
    ("kafka-python", "2.0.4"),
)
_START_US: Final = 1_767_225_600_000_000
_BOOT: Final = "019b8ff8d000c0ffee00"


def sample_events(
    count: int,
    *,
    node: str = "node-1",
    boot: str | None = None,
    first_seq: int = 0,
    start_us: int = _START_US,
    step_us: int = 1_000,
    seed: int = 1,
) -> Iterator[dict[str, Any]]:
    """Yield `count` events with gap-free sequence numbers, `step_us` apart. Equal arguments give equal events. Without
    `boot`, each node has a boot of its own, so that the names of segments are unique.
    """
    boot = boot or (_BOOT if node == "node-1" else _BOOT[:12] + hashlib.sha256(node.encode()).hexdigest()[:8])
    choose = random.Random(seed)
    next_seq = 0
    for seq in range(first_seq, first_seq + count):
        event: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "event_id": f"{node}/{boot}/{seq}",
            "node": node,
            "boot": boot,
            "seq": seq,
            "time_us": start_us + (seq - first_seq) * step_us,
        }
        pick = choose.random()
        if pick < 0.002:
            event.update(kind=ADMIN, action="certificate_swapped", outcome="ok", listener="secure", detail="server.pem")
        elif pick < 0.004:
            event.update(
                kind=AUDIT_GAP,
                action="segments_deleted",
                outcome="error",
                reason="spool_limit",
                gap_boot="019b8f000000c0ffee00",
                gap_first_seq=next_seq,
                gap_last_seq=next_seq + 9,
                gap_count=10,
            )
            next_seq += 10
        else:
            event.update(_of_a_client(choose, pick))
        yield event


def _of_a_client(choose: random.Random, pick: float) -> dict[str, Any]:
    user = choose.randrange(20)
    name, version = _SOFTWARE[user % len(_SOFTWARE)]
    secure = user % 2 == 0
    address, port = f"10.0.{user % 4}.{user + 1}", 40_000 + user
    event: dict[str, Any] = {
        "kind": CONNECTION,
        "action": "opened",
        "outcome": "ok",
        "listener": "secure" if secure else "plain",
        "transport": "ssl" if secure else "plaintext",
        "security_protocol": "SASL_SSL" if secure else "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "principal": f"User:user-{user}",
        "client_software_name": name,
        "client_software_version": version,
        "client_address": address,
        "client_port": port,
        "connection_id": f"127.0.0.1:9092-{address}:{port}-0-{user}",
    }
    if secure:
        event.update(tls_version="TLSv1.3", tls_cipher="TLS_AES_256_GCM_SHA384", sni="kafka.example.org")
    if pick < 0.02:
        return event
    if pick < 0.03:
        event.update(action="refused", outcome="refused", reason="per_ip", detail=f"{address} has 10 of 10 connections")
        for key in ("principal", "sasl_mechanism", "connection_id", "tls_version", "tls_cipher", "sni"):
            event.pop(key, None)
        return event
    if pick < 0.05:
        event.update(
            action="closed",
            outcome="closed",
            reason="peer closed the connection",
            duration_ms=round(choose.uniform(1, 60_000), 3),
            request_bytes=choose.randrange(1 << 20),
            response_bytes=choose.randrange(1 << 20),
        )
        return event
    if pick < 0.08:
        failed = choose.random() < 0.5
        event.update(kind=AUTHENTICATION, action="failure" if failed else "success", outcome="ok", error_code=0)
        if failed:
            event.update(
                principal="User:ANONYMOUS",
                outcome="denied",
                reason="Authentication failed",
                error_code=58,
                error_name="SASL_AUTHENTICATION_FAILED",
            )
        return event
    event.update(_request(choose, user))
    return event


def _request(choose: random.Random, user: int) -> dict[str, Any]:
    api_key, api_name, api_version = choose.choice(_APIS)
    local_ms, send_ms = round(choose.expovariate(2), 3), round(choose.expovariate(10), 3)
    topic: dict[str, Any] = {"type": "TOPIC", "name": f"orders-{user % 5}", "partitions": choose.randrange(1, 4)}
    event: dict[str, Any] = {
        "kind": REQUEST,
        "action": "completed",
        "outcome": "ok",
        "client_id": f"client-{user}",
        "api_key": api_key,
        "api_name": api_name,
        "api_version": api_version,
        "correlation_id": choose.randrange(1 << 20),
        "error_code": 0,
        "request_bytes": choose.randrange(40, 20_000),
        "response_bytes": choose.randrange(20, 20_000),
        "request_queue_time_ms": 0.012,
        "local_time_ms": local_ms,
        "remote_time_ms": 0.0,
        "throttle_time_ms": 0.0,
        "response_queue_time_ms": 0.004,
        "send_time_ms": send_ms,
        "total_time_ms": round(0.016 + local_ms + send_ms, 3),
    }
    if api_key in (0, 1):
        topic.update(
            operation="WRITE" if api_key == 0 else "READ", granted=True, records=user + 1, bytes=(user + 1) * 100
        )
    fate = choose.random()
    if fate < 0.02:
        topic.update(granted=False, error_code=29, error_name="TOPIC_AUTHORIZATION_FAILED")
        event.update(outcome="denied", error_code=29, error_name="TOPIC_AUTHORIZATION_FAILED")
    elif fate < 0.03:
        event.update(outcome="error", error_code=3, error_name="UNKNOWN_TOPIC_OR_PARTITION")
    elif fate < 0.05:
        event.update(outcome="throttled", throttle_time_ms=250.0)
    elif fate < 0.1:
        event.update(
            repeat_count=choose.randrange(2, 500),
            total_time_max_ms=round(event["total_time_ms"] * 2, 3),
            duration_ms=980.0,
        )
    if api_key != 12:
        event["resources"] = [topic]
    return event


def line_of(event: dict[str, Any]) -> bytes:
    """Return an event as a line in the server's form: the same order of fields, and times with three digits."""
    order = LINE_ORDER.get(event.get("kind", ""), OTHER_ORDER)
    names = sorted(event, key=lambda name: order.index(name) if name in order else len(order))
    return f"{{{','.join(f'{_json(name)}:{_json(event[name])}' for name in names)}}}\n".encode()


def _json(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        value = [{field.name: one[field.name] for field in RESOURCE_FIELDS if field.name in one} for one in value]
    return json.dumps(value, separators=(",", ":"))


def write_sample_spool(
    spool: Path, events: Iterable[dict[str, Any]], *, events_per_segment: int = 10_000, final: bool = False
) -> list[Path]:
    """Write sealed segments with their seals, for ordered events of one node and boot. Return the segments' paths.

    They continue the chain of the segments in the spool. `final` is True if the server then stopped in good order.
    """
    written: list[Path] = []
    newest: Seal | None = None
    batch: list[dict[str, Any]] = []

    def flush() -> None:
        nonlocal newest
        first, last = batch[0], batch[-1]
        node_folder = spool / first["node"]
        folder = node_folder / day_of(first["time_us"])
        folder.mkdir(parents=True, exist_ok=True)
        there = newest or max(map(Seal.read, segment_files(node_folder, SEAL_SUFFIX)), key=_index, default=None)
        stem = SegmentName(first["boot"], first["seq"]).stem
        data = b"".join(map(line_of, batch))
        sha256, previous = hashlib.sha256(data).hexdigest(), there.chain if there else NO_CHAIN
        sealed = lines_sha256(digests_of(data))
        newest = seal = Seal(
            schema_version=SCHEMA_VERSION,
            node=first["node"],
            boot=first["boot"],
            index=there.index + 1 if there else 0,
            segment=stem,
            first_seq=first["seq"],
            last_seq=last["seq"],
            events=len(batch),
            size_bytes=len(data),
            sha256=sha256,
            previous_chain=previous,
            chain=chain_of(previous, sha256, sealed),
            sealed_time_us=last["time_us"],
            lines_sha256=sealed,
        )
        (folder / f"{stem}{SEAL_SUFFIX}").write_bytes(seal.to_json())
        path = folder / f"{stem}{SEALED_SUFFIX}"
        path.write_bytes(data)
        written.append(path)
        batch.clear()

    for event in events:
        batch.append(event)
        if len(batch) == events_per_segment:
            flush()
    if batch:
        flush()
    if final and newest is not None:
        path = written[-1].with_suffix(SEAL_SUFFIX)
        path.write_bytes(replace(newest, final=True).to_json())
    return written


def _index(seal: Seal) -> int:
    return seal.index


def main(arguments: list[str] | None = None) -> None:
    """Write sample events to a spool. Return the exit code."""
    parser = argparse.ArgumentParser(description="Write a spool of sample events.")
    parser.add_argument("spool", type=Path)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--events-per-segment", type=int, default=50_000)
    parser.add_argument("--node", default="node-1")
    options = parser.parse_args(arguments)
    events = sample_events(options.events, node=options.node)
    write_sample_spool(options.spool, events, events_per_segment=options.events_per_segment)


if __name__ == "__main__":
    main()
