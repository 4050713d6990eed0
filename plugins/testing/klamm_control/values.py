"""The JSON objects that the HTTP API accepts and returns, each with its members."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

Count = Annotated[int | None, "Number to wait for; without it, return the present ones."]
TimeoutS = Annotated[float, "Seconds to wait, at most 60; afterwards the status is 408."]


Encoding = Annotated[Literal["utf-8", "base64"], "The encoding of keys, values, and values of headers as text."]


class About(TypedDict):
    """A server and its addresses."""

    version: Annotated[str, "The version of klamm."]
    bootstrap: Annotated[str, "HOST:PORT of each node, joined by commas: the clients' bootstrap servers."]
    listeners: Annotated[dict[str, str], "HOST:PORT of each listener, by its name."]


class Done(TypedDict):
    """An empty object, because the action has no other result."""


class TopicName(TypedDict):
    """The name of a topic."""

    name: str


class FirstOffset(TypedDict):
    """The offset of the first of several records."""

    offset: int


class ConsumedRecord(TypedDict):
    """A record of a topic. Without `encoding=base64`, the character U+FFFD replaces invalid UTF-8."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: Annotated[list[list[str | None]], "Pairs of name and value."]


FaultKind = Literal[
    "error",
    "error_after",
    "delay",
    "slow",
    "disconnect",
    "disconnect_after",
    "truncate",
    "corrupt",
    "stale_metadata",
    "coordinator_moved",
    "throttle",
    "partition_error",
    "reorder",
]


class _Kind(TypedDict):
    kind: Annotated[FaultKind, "Effect of the fault."]


class FaultRule(_Kind, total=False):
    """A rule: the conditions of the requests that get a fault, and the fault. An unset condition matches every
    request.
    """

    name: Annotated[str | None, "The rule's name; without it, the server chooses one."]
    api: Annotated[str | list[str] | None, "A name or names of APIs, e.g. Produce; if unset, all but ApiVersions."]
    topic: Annotated[str | None, "Pattern of a topic that the request names."]
    partition: Annotated[int | None, "A partition that the request names."]
    group: Annotated[str | None, "Pattern of a group that the request names."]
    client: Annotated[str | None, "Pattern of the client id."]
    listener: Annotated[str | None, "Pattern of the listener's name."]
    node: Annotated[int | None, "Id of the node that gets the request, as in Metadata."]
    error: Annotated[str | None, "Kafka's name of an error, for the kinds error, error_after and partition_error."]
    delay_ms: Annotated[int | None, "Milliseconds, for the kinds delay, slow, throttle and reorder."]
    after: Annotated[int | None, "Requests that pass before the first fault."]
    count: Annotated[int | None, "Maximum number of faults; if unset, any number."]
    probability: Annotated[float | None, "The share of matching requests that get the fault, 1 by default."]


class Fault(TypedDict):
    """An active rule."""

    name: str
    kind: FaultKind
    fired: Annotated[int, "Number of requests that got the fault."]


class Node(TypedDict):
    """A node of the broker."""

    id: int
    running: bool
    epoch: Annotated[int, "Number of times that the node has started."]
    listeners: Annotated[dict[str, str], "HOST:PORT of each of its listeners, by name."]
    leads: Annotated[int, "Number of partitions that the node leads."]


class Coordinator(TypedDict):
    """The node that coordinates a group or a transactional id."""

    node: int


class RecordedRequest(TypedDict):
    """A completed request of a client, with its answer."""

    api: str
    version: int
    client_id: str | None
    correlation_id: int
    listener: str
    connection_id: str
    principal: str
    ended_ms: Annotated[int, "The server's time at the end of the request."]
    duration_ms: float
    outcome: Annotated[str, "E.g. answered, refused, failed, no_answer, lost_before."]
    error_code: Annotated[int, "The first error code of the answer; 0 if there is none."]
    request: Annotated[Any, "The request's fields that differ from their defaults; null if it was not read."]
    response: Annotated[Any, "The answer's fields that differ from their defaults; null if there was none."]
    raw: Annotated[str, "The body of the request in base64."]


class Timeline(TypedDict):
    """The requests and changes of a server. Both texts are empty if there were none."""

    text: Annotated[str, "The latest lines, for a terminal."]
    html: Annotated[str, "A page of HTML that needs no other file."]


class User(TypedDict):
    """A user of the listener with TLS and SCRAM."""

    name: str
    password: str


class _Access(TypedDict):
    user: Annotated[str, "A name, or * for all."]
    operation: Annotated[str, "E.g. READ, WRITE, CREATE, DESCRIBE, ALL."]
    resource_type: Annotated[str, "E.g. TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID."]
    name: Annotated[str, "Name of the resource."]


class AccessRule(_Access, total=False):
    """A user, and an operation on a resource."""

    prefix: Annotated[bool, "True if the rule is for all resources whose names begin with `name`."]
    host: Annotated[str, "The address of the user's client; * by default."]


class Acl(TypedDict):
    """A rule of an access control list, in Kafka's words."""

    principal: Annotated[str, "E.g. User:alice."]
    host: str
    operation: str
    permission: str
    resource_type: str
    name: str
    pattern_type: str


class GroupPartition(TypedDict):
    """A partition that a group has read, or that is assigned to a member."""

    topic: str
    partition: int
    committed: Annotated[int | None, "The committed offset."]
    lag: Annotated[int, "Number of offsets from the committed one to the end of the log."]


class AssignedPartition(TypedDict):
    """A partition that is assigned to a member of a group."""

    topic: str
    partition: int


class GroupMember(TypedDict):
    """A member of a group."""

    member_id: str
    client_id: str
    instance_id: str | None
    partitions: list[AssignedPartition]


class Group(TypedDict):
    """A group of consumers."""

    name: str
    state: Annotated[str, "Kafka's name of the group's state, e.g. Stable; Dead if there is no such group."]
    members: list[GroupMember]
    partitions: list[GroupPartition]
    lag: Annotated[int, "The lag of all partitions together."]


class WallTime(TypedDict):
    """The time of the server."""

    wall_ms: Annotated[int, "Milliseconds since 1970."]
