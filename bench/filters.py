"""The cost of filters: `python -m bench.filters [--rounds 5]`.

Calls each filter with one request and its response as a server does, on one core, without a server. Prints a Markdown
table of microseconds for a request with its response. Each is the best of the rounds, because other processes only add
time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from klamm import RequestFilter
from klamm.testing import MemoryListener
from klamm.wire.messages import fetch, heartbeat, metadata, produce
from klamm.wire.records import Record, encode_batch
from klamm.wire.struct_base import copy_message
from klamm_filters.client_limits import ClientLimits
from klamm_filters.filter_settings import ClientLimitsSettings, RewriteClientIdSettings
from klamm_filters.records.encryption import RecordEncryption
from klamm_filters.records.encryption_settings import RecordEncryptionSettings
from klamm_filters.records.validation import RecordValidation
from klamm_filters.records.validation_settings import RecordRuleSettings, RecordValidationSettings
from klamm_filters.rewrite_client_id import RewriteClientId
from klamm_filters.tenancy.filter import TopicPrefix
from klamm_filters.tenancy.tenancy_settings import TopicPrefixSettings

_TOPIC = "orders"
_PREFIX = "team-a."
_RECORDS = 16
_VALUE = json.dumps({"id": 1, "text": "x" * 1000}).encode()
_SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
_SECONDS = 0.3


def _batch() -> bytes:
    return bytes(encode_batch([Record(timestamp_ms=1, key=b"key", value=_VALUE)] * _RECORDS))


def _heartbeat(topic: str) -> tuple[Any, Any, int]:
    return heartbeat.HeartbeatRequest("group", 1, "member"), heartbeat.HeartbeatResponse(), 4


def _metadata(topic: str) -> tuple[Any, Any, int]:
    topics = [
        metadata.MetadataResponseTopic(
            name=f"{topic}-{number}", topic_id=bytes([1, number]) * 8, partitions=[metadata.MetadataResponsePartition()]
        )
        for number in range(100)
    ]
    return metadata.MetadataRequest(None), metadata.MetadataResponse(topics=topics), 12


def _produce(topic: str) -> tuple[Any, Any, int]:
    data = [produce.TopicProduceData(_TOPIC, partition_data=[produce.PartitionProduceData(0, _batch())])]
    answer = [produce.TopicProduceResponse(topic, partition_responses=[produce.PartitionProduceResponse()])]
    return produce.ProduceRequest(None, 1, 1000, data), produce.ProduceResponse(responses=answer), 9


def _fetch(topic: str) -> tuple[Any, Any, int]:
    wanted = [fetch.FetchTopic(_TOPIC, partitions=[fetch.FetchPartition()])]
    found = [fetch.FetchableTopicResponse(topic, partitions=[fetch.PartitionData(records=_batch())])]
    return fetch.FetchRequest(topics=wanted), fetch.FetchResponse(responses=found), 12


MESSAGES: dict[str, Callable[[str], tuple[Any, Any, int]]] = {
    "Heartbeat": _heartbeat,
    "Metadata, 100 topics": _metadata,
    f"Produce, {_RECORDS} records of 1 KiB": _produce,
    f"Fetch, {_RECORDS} records of 1 KiB": _fetch,
}


def filters(folder: Path) -> dict[str, RequestFilter]:
    """Return one filter of each kind, with usual settings."""
    schema, keys = folder / "schema.json", folder / "keys.toml"
    schema.write_text(json.dumps(_SCHEMA))
    keys.write_text(f'current = "k"\n[keys]\nk = "{"A" * 43}="\n')
    is_json = RecordRuleSettings(topics=("*",), value="json")
    fulfils = RecordRuleSettings(topics=("*",), value_schema=schema)
    return {
        "none": RequestFilter(),
        "client_limits": ClientLimits(
            ClientLimitsSettings(client_ids=("*",), min_software_versions={"x": "1"}, software=("*",))
        ),
        "rewrite_client_id": RewriteClientId(RewriteClientIdSettings()),
        "topic_prefix": TopicPrefix(TopicPrefixSettings(prefix=_PREFIX)),
        "record_validation, JSON": RecordValidation(RecordValidationSettings({"all": is_json})),
        "record_validation, schema": RecordValidation(RecordValidationSettings({"all": fulfils})),
        "record_encryption": RecordEncryption(RecordEncryptionSettings(keys_file=keys)),
    }


def cost_us(part: RequestFilter, messages: tuple[Any, Any, int], listener: MemoryListener) -> float:
    """Return the microseconds of one request with its response, measured in one round."""
    request, response, version = messages
    calls, spent_ns = 0, 0
    end_ns = time.monotonic_ns() + int(_SECONDS * 1e9)
    while time.monotonic_ns() < end_ns:
        context = listener.request(request, version)
        own_request, own_response = copy_message(request), copy_message(response)
        start_ns = time.perf_counter_ns()
        part.on_request(own_request, context)
        part.on_response(own_response, context)
        spent_ns += time.perf_counter_ns() - start_ns
        calls += 1
    return spent_ns / calls / 1000


def _encrypt(part: RequestFilter, messages: tuple[Any, Any, int], listener: MemoryListener) -> None:
    """Put the records of a Produce that went through the filter into the response of a Fetch."""
    request, _, version = _produce(_TOPIC)
    written = part.on_request(request, listener.request(request, version))
    messages[1].responses[0].partitions[0].records = written.topic_data[0].partition_data[0].records


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| filter |", " | ".join(MESSAGES), "|")
    print("| --- |", " | ".join("---" for _ in MESSAGES), "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, part in filters(Path(folder)).items():
            listener = MemoryListener()
            part.open(listener.context)
            keys = part.api_keys
            row = []
            for make in MESSAGES.values():
                messages = make(_PREFIX + _TOPIC if name == "topic_prefix" else _TOPIC)
                if make is _fetch and name == "record_encryption":
                    _encrypt(part, messages, listener)
                if keys is not None and messages[0].API_KEY not in keys:
                    row.append("—")
                else:
                    row.append(f"{min(cost_us(part, messages, listener) for _ in range(rounds)):.1f}")
            print(f"| {name} |", " | ".join(row), "|")


if __name__ == "__main__":
    main()
