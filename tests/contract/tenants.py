"""Requests of every API and version for tests of tenancy, and the texts that a tenant must never see.

`test_tenancy.py` uses two tenants, `a` and `b`. A broker may not be ready at once, so `TenantClient` repeats its
requests that create things.
"""

import random

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey, find_spec, load
from klamm.wire.messages import (
    create_topics,
    describe_configs,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.primitives import WireError
from klamm.wire.records import Record, encode_batch
from tests.oracles.samples import Samples
from tests.waiting import wait_until
from tools.messages.schema import Schema

PREFIXES = {"a": "tenant-a.", "b": "tenant-b."}
SECRETS = ("tenant-a", "tenant-b", "only-of-a", "value-of-a", "metadata-of-a", "client-of-a", "config-of-a")
"""Texts that no response to the tenant `b` may contain: both tenants' prefixes, and texts that only `a` has sent."""

CONSUMER_BYTES = b"\0\1\0\0\0\1\0\6orders\0\0\0\0\0\0\0\0"


class Filled(Samples):
    """Requests in which all texts, numbers, ids and bytes have the given values.

    `empty` is the option of `Samples`: 0 or 1.
    """

    def __init__(self, raw, *, text="", number=0, topic_id=bytes(16), records=b"", empty=0.0):
        schema = Schema(raw)
        super().__init__(schema, load(schema.api_key), random.Random(1), empty)
        self.text, self.number, self.topic_id, self.records = text, number, topic_id, records

    def _value(self, field, version):
        return [self._element(field, version)] if field.is_array else self._element(field, version)

    def _element(self, field, version):
        if field.struct is not None:
            return self._struct(field.struct, version)
        if field.element == "string":
            return self.text
        if field.element == "bool":
            return bool(self.number)
        if field.element == "float64":
            return float(self.number)
        if field.element == "uuid":
            return self.topic_id
        if field.element == "records":
            return self.records
        if field.element == "bytes":
            return CONSUMER_BYTES
        # Another value would be the id of a follower, which only a broker may be.
        return -1 if field.name == "replica_id" else self.number


def served_requests(descriptions, served, **options):
    """Yield (API key, version, request) for every version that a server offers."""
    for raw in descriptions.values():
        if raw["type"] != "request" or raw["apiKey"] not in served:
            continue
        for version in served[raw["apiKey"]]:
            made = Filled(raw, **options).draw(version)
            if raw["apiKey"] == ApiKey.PRODUCE:
                # With 0 there would be no response.
                made.acks = 1
            try:
                made.encode(version)
            except WireError:
                continue
            yield raw["apiKey"], version, made


def batch(value):
    return bytes(encode_batch([Record(timestamp_ms=1, value=value)]))


class TenantClient:
    """A tenant's client: `make` creates what the tenant owns, `state` returns what the tenant sees of it."""

    def __init__(self, address, name, timeout_s=60):
        self.address, self.name, self.timeout_s = address, name, timeout_s
        self.client = RawClient(address, client_id=f"client-of-{name}", timeout_s=timeout_s)

    def call(self, request, version):
        return self.client.call(request, version)

    def close(self):
        self.client.close()

    def answer_to(self, request, version):
        """Return the response, or None if the server has closed the connection."""
        try:
            return self.call(request, version)
        except TimeoutError:
            raise AssertionError(f"no response to v{version} of {request}") from None
        except ConnectionError:
            self.client.close()
            self.client = RawClient(self.address, client_id=f"client-of-{self.name}", timeout_s=self.timeout_s)
            return None

    def make(self, topics=("orders",)):
        """Create topics with a record each, a group with a member and offsets, and a transactional id."""
        created = self.call(
            create_topics.CreateTopicsRequest([create_topics.CreatableTopic(one, 1, 1) for one in topics]), 7
        )
        assert [(one.name, one.error_code) for one in created.topics] == [(one, 0) for one in topics]
        for topic in topics:
            self.produce(topic, f"value-of-{self.name}".encode())
        alter = incremental_alter_configs.AlterConfigsResource(
            2, topics[0], [incremental_alter_configs.AlterableConfig("retention.ms", 0, self.retention_ms)]
        )
        altered = self.call(incremental_alter_configs.IncrementalAlterConfigsRequest([alter]), 1)
        assert altered.responses[0].error_code == 0
        self.join()
        commit = offset_commit.OffsetCommitRequestPartition(0, 1, -1, f"metadata-of-{self.name}")
        committed = self.call(
            offset_commit.OffsetCommitRequest(
                "grp",
                self.generation,
                self.member,
                None,
                -1,
                [offset_commit.OffsetCommitRequestTopic(topics[0], partitions=[commit])],
            ),
            8,
        )
        assert committed.topics[0].partitions[0].error_code == 0
        transaction = init_producer_id.InitProducerIdRequest("txn", 60_000)
        wait_until(lambda: self.call(transaction, 4).error_code == 0)

    @property
    def retention_ms(self):
        return {"a": "123456789", "b": "987654321"}[self.name]

    def produce(self, topic, value):
        data = [produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, batch(value))])]
        request = produce.ProduceRequest(None, 1, 10_000, data)
        wait_until(lambda: self.call(request, 9).responses[0].partition_responses[0].error_code == 0)

    def join(self):
        protocols = [join_group.JoinGroupRequestProtocol("range", CONSUMER_BYTES)]
        request = join_group.JoinGroupRequest("grp", 300_000, 60_000, "", None, "consumer", protocols)
        joined = EmbeddedServer.wait_until(lambda: (answer := self.call(request, 3)).error_code == 0 and answer)
        self.generation, self.member = joined.generation_id, joined.member_id
        assignment = [sync_group.SyncGroupRequestAssignment(self.member, b"")]
        assert (
            self.call(
                sync_group.SyncGroupRequest("grp", self.generation, self.member, None, None, None, assignment), 3
            ).error_code
            == 0
        )

    def state(self):
        """Return all that the tenant sees of its own things."""
        found = self.call(metadata.MetadataRequest(None), 12)
        topics = sorted((one.name, one.topic_id, len(one.partitions)) for one in found.topics)
        wanted = [
            list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0, -1, -1)]) for name, _, _ in topics
        ]
        ends = self.call(list_offsets.ListOffsetsRequest(-1, 0, wanted), 7)
        group = offset_fetch.OffsetFetchRequestGroup("grp", None, -1, None)
        offsets = self.call(offset_fetch.OffsetFetchRequest(groups=[group]), 8)
        groups = self.call(list_groups.ListGroupsRequest(), 4)
        resource = describe_configs.DescribeConfigsResource(2, "orders", ["retention.ms"])
        configs = self.call(describe_configs.DescribeConfigsRequest([resource]), 4)
        return {
            "topics": topics,
            "ends": [(one.name, one.partitions[0].offset) for one in ends.topics],
            "offsets": [
                (topic.name, one.committed_offset, one.metadata)
                for topic in offsets.groups[0].topics
                for one in topic.partitions
            ],
            "groups": sorted((one.group_id, one.group_state) for one in groups.groups),
            "configs": [(one.resource_name, one.configs[0].value) for one in configs.results],
        }


def shown(response):
    """Return all content of a response as text."""
    return repr(response)


def topic_ids(client, version=12):
    return {one.name: one.topic_id for one in client.call(metadata.MetadataRequest(None), version).topics}


def served_by(tenant):
    offered = tenant.call(ApiVersionsRequest(), 0).api_keys
    return {
        one.api_key: range(max(one.min_version, find_spec(one.api_key).min_version), one.max_version + 1)
        for one in offered
    }


# Each walk fills the requests with other names, ids or numbers. The numbers are small, so that no request waits long.
WALKS = {
    "its own names": {"text": "orders", "number": 0},
    "its own names, ones": {"text": "grp", "number": 1},
    "transactional id": {"text": "txn", "number": 0},
    "everything": {"empty": 1.0},
    "wildcards": {"text": "*", "number": 2},
    "no names": {"text": "", "number": 1},
    "id at the broker": {"text": "", "number": 0, "topic_id": "broker"},
    "id of the other": {"text": "", "number": 1, "topic_id": "client"},
    # These come last, because what they create has a doubled prefix in the name that its owner sees.
    "names of the other": {"text": "tenant-a.orders", "number": 0},
    "names of the other, ones": {"text": "tenant-a.orders", "number": 1},
    "groups of the other": {"text": "tenant-a.grp", "number": 3},
}


def walk_apis(descriptions, broker_address, a, b, walk, *, unanswered=()):
    """Send each API in each version as the tenant `b`. Fail if `b` sees anything of `a`.

    Return the APIs that were answered. `unanswered` are APIs that the broker may leave without a response.
    """
    options = dict(walk, records=batch(b"value-of-b"))
    if "topic_id" in options:
        options["topic_id"] = topic_ids(a)["orders"]
        if walk["topic_id"] == "broker":
            with RawClient(broker_address) as client:
                options["topic_id"] = topic_ids(client)["tenant-a.orders"]
    sent = [text for text in SECRETS if text in options.get("text", "")]
    answered = set()
    for api_key, version, request in served_requests(descriptions, served_by(b), **options):
        if api_key in unanswered:
            continue
        response = b.answer_to(request, version)
        text = shown(response)
        seen = [one for one in SECRETS if one in text and one not in sent]
        assert not seen, f"{find_spec(api_key).name} v{version}: {request}\n{response}"
        if response is not None:
            answered.add(api_key)
    return answered
