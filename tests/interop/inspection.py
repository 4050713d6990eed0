"""Functions that look at the server without the clients, so that a test can check its own preconditions."""

from __future__ import annotations

import struct
import time

from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.interop.workload import CODECS
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

_SIZE_AT = 8
_ATTRIBUTES_AT = 21
_CODEC_BITS = 7


def stored_codecs(server: Server, topic: str) -> set[str]:
    """Return the codecs of the batches in the first MiB of partition 0."""
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic, partitions=[partition])])
    with WireClient(HOST, server.port) as client:
        records = client.call(request, 12).responses[0].partitions[0].records
    codecs, at = set(), 0
    while at + _ATTRIBUTES_AT + 2 <= len(records):
        (attributes,) = struct.unpack_from(">h", records, at + _ATTRIBUTES_AT)
        codecs.add(CODECS[attributes & _CODEC_BITS])
        (batch_size,) = struct.unpack_from(">i", records, at + _SIZE_AT)
        at += _SIZE_AT + 4 + batch_size
    return codecs


def wait_for_stable_group(server: Server, group: str, members: int, timeout_s: float = 90.0) -> None:
    """Wait until the group has this number of members and each has its partitions. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    with WireClient(HOST, server.port) as client:
        while True:
            description = client.call(DescribeGroupsRequest(groups=[group]), 5).groups[0]
            if description.group_state == "Stable" and len(description.members) == members:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{group} is {description.group_state} with {len(description.members)} members")
            time.sleep(0.1)
