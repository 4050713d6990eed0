"""The resources of a request, e.g. topics and groups, from the decoded request and its response.

Results have only names and counts. They hold no view of a frame, so that a large request does not stay in memory. The
observer calls this on the thread that serves the request, and on the writer's thread.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from struct import Struct
from typing import Any, Final, NamedTuple

from klamm import RequestEvent, clipped, escape_control_characters
from klamm.acl import Verdict
from klamm.wire.api_keys import ApiKey
from klamm.wire.response_errors import named_errors

log = logging.getLogger("klamm.audit")

AUTHORIZATION_ERRORS: Final = frozenset({29, 30, 31, 53, 65})
"""The codes of TOPIC_, GROUP_, CLUSTER_, TRANSACTIONAL_ID_ and DELEGATION_TOKEN_AUTHORIZATION_FAILED."""
_TOPIC_IDS_KEPT: Final = 100_000
_TWO_NAMES: Final = ""
_NO_ID: Final = bytes(16)
_CLUSTER: Final = "kafka-cluster"
_BATCH_LENGTH: Final = Struct(">i")
_BATCH_LENGTH_AT: Final = 8
_RECORD_COUNT_AT: Final = 57
_BATCH_HEADER_BYTES: Final = 61


class ChangedAs(NamedTuple):
    """The name of a resource in `RequestContext.note_change`. `prefix` and the key there make the attribute's name."""

    kind: str
    resource: str
    prefix: str = ""


@dataclass(slots=True, eq=False)
class Resource:
    """One resource of a request. Unknown values are None. `klamm_spark.events.event.RESOURCE_FIELDS` explains the
    fields.

    `changed` has the old and the new values of attributes, and `changed_as` the name under which the handler noted
    them.
    """

    type: str
    name: str
    operation: str | None = None
    granted: bool | None = None
    verdict: Verdict | None = None
    error_code: int = 0
    partitions: int | None = None
    records: int | None = None
    bytes: int | None = None
    attributes: list[tuple[str, str | None, str | None]] | None = None
    changed_as: ChangedAs | None = None
    changed: dict[str, tuple[str | None, str | None]] | None = None

    def add(self, name: str, value: object, operation: str | None = None) -> None:
        """Add an attribute of a state change: the value that it sets, or None if it only has an operation."""
        if self.attributes is None:
            self.attributes = []
        self.attributes.append((name, None if value is None else str(value), operation))

    def add_given(self, name: str, value: object) -> None:
        """Add an attribute, unless its value is None or empty. A boolean becomes `true` or `false`."""
        if value is True or value is False:
            self.add(name, "true" if value else "false")
        elif value is not None and value != "":
            self.add(name, value)


@dataclass(slots=True, eq=False)
class Summary:
    """The summary of a request's messages, for its event. `count` counts resources before the list was cut."""

    error_code: int
    denied: bool
    resources: list[Resource]
    count: int

    def add_topics(self, totals: dict[str, list[int]], most: int) -> None:
        """Replace the counts of the first request by the counts of all requests, see `add_produced_and_fetched`."""
        known = {resource.name: resource for resource in self.resources if resource.type == "TOPIC"}
        for name, (partitions, records, size_bytes) in totals.items():
            resource = known.get(name)
            if resource is None:
                self.count += 1
                if len(self.resources) >= most:
                    continue
                resource = Resource("TOPIC", name)
                self.resources.append(resource)
            resource.partitions, resource.bytes = partitions, size_bytes
            resource.records = records if records >= 0 else None


class TopicNames:
    """The names of topic ids, from responses of Metadata and CreateTopics. Later requests have only ids (KIP-516).

    It belongs to one handler set, because another one may be a gateway of another cluster with other topics. If an id
    appears with a second name, it has no name from then on.
    """

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def learn(self, topics: Iterable[Any]) -> None:
        """Note the names in structs with `name` and `topic_id`."""
        for topic in topics:
            if topic.name and topic.topic_id != _NO_ID:
                topic_id = bytes(topic.topic_id)
                known = self._names.get(topic_id)
                if known is None:
                    if len(self._names) >= _TOPIC_IDS_KEPT:
                        self._names.clear()
                    self._names[topic_id] = topic.name
                elif known not in (topic.name, _TWO_NAMES):
                    self._names[topic_id] = _TWO_NAMES
                    log.error(
                        "audit: the topic id %s had the name %s and gets the name %s: it is recorded as an id",
                        self.id_text(topic_id),
                        clipped(escape_control_characters(known)),
                        clipped(escape_control_characters(topic.name)),
                    )

    def name(self, topic_id: Any) -> str:
        """Return the name of a topic id, or the id as Kafka writes it."""
        return self._names.get(bytes(topic_id)) or self.id_text(topic_id)

    @staticmethod
    def id_text(topic_id: Any) -> str:
        """Return the id as Kafka writes it."""
        return base64.urlsafe_b64encode(bytes(topic_id)).decode().rstrip("=")


def numbers(values: Iterable[int]) -> str:
    """Return numbers as ranges in order: `0-3,7`."""
    ranges: list[list[int]] = []
    for value in sorted(set(values)):
        if ranges and value == ranges[-1][1] + 1:
            ranges[-1][1] = value
        else:
            ranges.append([value, value])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


class Place:
    """A place in requests that names resources, from a row `TYPE PATH ATTRIBUTE…`. Without a path, it names the
    cluster.

    The path leads through lists of structs to a name, a number, or a list of names. If a struct has no name, its topic
    id is used. An attribute is one of these:

    - `NAME=FIELD`, or `FIELD` if that is its name: a value of the struct;
    - `NAME=LIST.FIELD`: the numbers in this field of a list's structs;
    - `NAME.N=LIST.FIELD`: one attribute for each struct of a list of partitions;
    - `NAME=#LIST`: the length of a list, if it is not empty; `#LIST` alone sets the resource's `partitions`.
    """

    def __init__(self, row: str) -> None:
        self.type, path, *words = row.split() if " " in row else (row, "")
        *self._steps, self._name = path.split(".")
        self._counted = next((word[1:] for word in words if word[0] == "#"), "")
        self.attributes = [word.partition("=")[0] for word in words if word[0] != "#"]
        self._readers = [_reader(word) for word in words if word[0] != "#"]

    def resources(self, request: Any, topics: TopicNames) -> list[Resource]:
        """Return the resources that a request names at this place."""
        found, items = [], [request]
        for step in self._steps:
            items = [below for item in items for below in getattr(item, step) or ()]
        for item in items:
            named = getattr(item, self._name) if self._name else _CLUSTER
            for one in named if isinstance(named, list) else [named]:
                name = one if one and isinstance(one, str) else _name_of(one, item, topics)
                resource = Resource(self.type, name)
                if self._counted:
                    resource.partitions = len(getattr(item, self._counted) or ())
                for read in self._readers:
                    read(resource, item)
                found.append(resource)
        return found


def _name_of(one: Any, item: Any, topics: TopicNames) -> str:
    if isinstance(one, bytes):
        return topics.name(one)
    topic_id = _NO_ID if one else getattr(item, "topic_id", _NO_ID)
    return topics.name(topic_id) if topic_id != _NO_ID else "" if one is None else str(one)


def _reader(word: str) -> Callable[[Resource, Any], None]:
    """Return a function that adds an attribute of a `Place` to a resource, from a struct of the request."""
    name, _, path = word.partition("=")
    field, _, below = (path or name).partition(".")

    value_of, value_below = attrgetter(field.lstrip("#")), attrgetter(below or field)
    before = name.removesuffix("N")

    def add_each(resource: Resource, item: Any) -> None:
        for one in value_of(item):
            resource.add(f"{before}{one.partition_index}", value_below(one))

    def add_numbers(resource: Resource, item: Any) -> None:
        resource.add_given(name, numbers(map(value_below, value_of(item))))

    def add_count(resource: Resource, item: Any) -> None:
        resource.add_given(name, len(value_of(item)) or None)

    def add_value(resource: Resource, item: Any) -> None:
        resource.add_given(name, value_of(item))

    if below:
        return add_each if name.endswith(".N") else add_numbers
    return add_count if field[0] == "#" else add_value


_K = ApiKey
_READ: Final[dict[int, tuple[Place, ...]]] = {
    api_key: tuple(map(Place, rows))
    for api_key, rows in {
        _K.LIST_OFFSETS: ["TOPIC topics.name #partitions"],
        _K.METADATA: ["TOPIC topics.name"],
        _K.OFFSET_FETCH: [
            "GROUP group_id",
            "TOPIC topics.name #partition_indexes",
            "GROUP groups.group_id",
            "TOPIC groups.topics.name #partition_indexes",
        ],
        _K.HEARTBEAT: ["GROUP group_id"],
        _K.CONSUMER_GROUP_HEARTBEAT: ["GROUP group_id"],
        _K.DESCRIBE_GROUPS: ["GROUP groups"],
        _K.CONSUMER_GROUP_DESCRIBE: ["GROUP group_ids"],
        _K.OFFSET_FOR_LEADER_EPOCH: ["TOPIC topics.topic #partitions"],
        _K.DESCRIBE_PRODUCERS: ["TOPIC topics.name #partition_indexes"],
        _K.DESCRIBE_TOPIC_PARTITIONS: ["TOPIC topics.name"],
        _K.DESCRIBE_TRANSACTIONS: ["TRANSACTIONAL_ID transactional_ids"],
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS: ["USER users.name"],
    }.items()
}
CONFIG_TYPES: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_COORDINATOR_TYPES: Final = {0: "GROUP", 1: "TRANSACTIONAL_ID", 2: "SHARE"}
_CARRY_TOPIC_IDS: Final = frozenset({_K.METADATA, _K.CREATE_TOPICS})


def summarize(event: RequestEvent, topics: TopicNames, most: int) -> Summary:
    """Return the summary of a request, with at most `most` resources, or all if it was denied."""
    message, response, api_key = event.request, event.response, event.context.api_key
    error_code = event.error_code
    errors = named_errors(response, topics.name) if error_code else {}
    found: dict[tuple[str, str], Resource] = {}
    if message is not None and not isinstance(message, (bytes, bytearray, memoryview)):
        for resource in _mentioned(api_key, message, response, topics):
            found.setdefault((resource.type, resource.name), resource)
    denied = add_decisions(event, found) if event.context.decisions else False
    if errors:
        for resource in found.values():
            resource.error_code = errors.get(resource.name, 0)
    denied = denied and bool(error_code)
    denied = denied or error_code in AUTHORIZATION_ERRORS or not AUTHORIZATION_ERRORS.isdisjoint(errors.values())
    resources = list(found.values())
    if len(resources) > most and not denied:
        # Keep the resources with errors.
        resources.sort(key=lambda resource: not (resource.error_code or resource.granted is False))
        del resources[most:]
    return Summary(error_code, denied, resources, len(found))


def summarize_errors(event: RequestEvent) -> Summary:
    """Return the summary of a request, with only the denied resources."""
    error_code = event.error_code
    found: dict[tuple[str, str], Resource] = {}
    denied = add_decisions(event, found) if event.context.decisions else False
    refused = [resource for resource in found.values() if resource.granted is False] if denied and error_code else []
    denied = (denied and bool(error_code)) or error_code in AUTHORIZATION_ERRORS
    return Summary(error_code, denied, refused, len(refused))


def learn_topic_ids(event: RequestEvent, topics: TopicNames) -> None:
    """Note the topic names in a response, if its API has them."""
    if event.context.api_key in _CARRY_TOPIC_IDS and event.response is not None:
        topics.learn(getattr(event.response, "topics", None) or ())


def add_decisions(event: RequestEvent, found: dict[tuple[str, str], Resource]) -> bool:
    """Add the authorizer's decisions to the resources. Return True if one of them was a denial."""
    denied = False
    for operation, resource_type, name, granted, verdict in event.context.decisions or ():
        key = (resource_type.name, name)
        resource = found.get(key)
        if resource is None:
            resource = found[key] = Resource(*key)
        # Keep the last of several permissions, because it is for the request itself: e.g. DELETE after DESCRIBE.
        if resource.granted is not False:
            resource.operation, resource.granted = operation.name, granted
            resource.verdict = verdict
        denied = denied or not granted
    return denied


def _mentioned(api_key: int, message: Any, response: Any, topics: TopicNames) -> Iterator[Resource]:
    if api_key == _K.PRODUCE:
        yield from _produced(message, response, topics)
    elif api_key == _K.FETCH:
        yield from _fetched(message, response, topics)
    elif api_key == _K.DESCRIBE_CONFIGS:
        for item in message.resources or ():
            yield Resource(CONFIG_TYPES.get(item.resource_type, "UNKNOWN"), item.resource_name)
    elif api_key == _K.FIND_COORDINATOR:
        for name in message.coordinator_keys or [message.key]:
            yield Resource(_COORDINATOR_TYPES.get(message.key_type, "UNKNOWN"), name)
    else:
        for place in _READ.get(api_key, ()):
            for resource in place.resources(message, topics):
                if resource.name:
                    yield resource


def _produced(message: Any, response: Any, topics: TopicNames) -> Iterator[Resource]:
    if message.transactional_id:
        yield Resource("TRANSACTIONAL_ID", message.transactional_id)
    # A filter may remove partitions from the request, and answer them itself. Count these partitions, without records.
    answered = {
        topic.name or topics.name(topic.topic_id): len(topic.partition_responses)
        for topic in getattr(response, "responses", None) or ()
    }
    for topic in message.topic_data or ():
        resource = Resource("TOPIC", topic.name or topics.name(topic.topic_id))
        resource.partitions = max(len(topic.partition_data), answered.pop(resource.name, 0))
        resource.records, resource.bytes = 0, 0
        for data in topic.partition_data:
            _add_records(resource, data.records)
        yield resource
    for name, partitions in answered.items():
        yield Resource("TOPIC", name, partitions=partitions)


def _fetched(message: Any, response: Any, topics: TopicNames) -> Iterator[Resource]:
    # Read the response first: within a fetch session, the request names only changed partitions (KIP-227).
    for topic in getattr(response, "responses", None) or ():
        resource = Resource("TOPIC", topic.topic or topics.name(topic.topic_id))
        resource.partitions = len(topic.partitions)
        resource.bytes = 0
        for data in topic.partitions:
            _add_records(resource, data.records)
        if any(hasattr(data.records, "size_bytes") for data in topic.partitions):
            # Records that were sent from files, or passed on as they arrived, are not counted.
            resource.records = None
        yield resource
    for topic in message.topics or ():
        resource = Resource("TOPIC", topic.topic or topics.name(topic.topic_id))
        resource.partitions = len(topic.partitions)
        yield resource


def _add_records(resource: Resource, records: Any) -> None:
    if records is None:
        return
    assert resource.bytes is not None
    if isinstance(records, (bytes, bytearray, memoryview)):
        resource.bytes += len(records)
        if len(records):
            resource.records = (resource.records or 0) + _count_records(records)
    else:
        resource.bytes += records.size_bytes


def _count_records(data: Any) -> int:
    """Count records by the headers of batches. Incomplete batches and old formats have no records here."""
    count = position = 0
    while position + _BATCH_HEADER_BYTES <= len(data):
        (length,) = _BATCH_LENGTH.unpack_from(data, position + _BATCH_LENGTH_AT)
        if length <= 0:
            break
        if data[position + 16] == 2:
            count += max(0, _BATCH_LENGTH.unpack_from(data, position + _RECORD_COUNT_AT)[0])
        position += 12 + length
    return count


def add_produced_and_fetched(event: RequestEvent, totals: dict[str, list[int]], topics: TopicNames) -> None:
    """Add a request's numbers to the topics' numbers: partitions (the maximum), records and bytes. -1 records: not
    counted.
    """
    if type(event.request) is Summary:
        for resource in event.request.resources:
            if resource.type == "TOPIC" and resource.bytes is not None:
                records = resource.records if resource.records is not None else -1
                _add_total(totals, resource.name, resource.partitions or 0, records, resource.bytes)
    elif event.context.api_key == _K.PRODUCE:
        for topic in event.request.topic_data:
            data = [partition.records for partition in topic.partition_data if partition.records is not None]
            records = sum(map(_count_records, data))
            name = topic.name or topics.name(topic.topic_id)
            _add_total(totals, name, len(topic.partition_data), records, sum(map(len, data)))
    else:
        for topic in getattr(event.response, "responses", ()):
            size_bytes = sum(_size(partition.records) for partition in topic.partitions)
            _add_total(totals, topic.topic or topics.name(topic.topic_id), len(topic.partitions), -1, size_bytes)


def _size(records: Any) -> int:
    if records is None:
        return 0
    size: int = len(records) if isinstance(records, (bytes, bytearray, memoryview)) else records.size_bytes
    return size


def _add_total(totals: dict[str, list[int]], name: str, partitions: int, records: int, size_bytes: int) -> None:
    total = totals.get(name)
    if total is None:
        totals[name] = [partitions, records, size_bytes]
        return
    total[0] = max(total[0], partitions)
    total[1] = total[1] + records if records >= 0 and total[1] >= 0 else -1
    total[2] += size_bytes
