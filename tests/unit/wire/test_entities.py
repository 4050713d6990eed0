"""Compares `map_entities` with the descriptions for every API and version.

Also tests the bytes of the consumer protocol.
"""

import random
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.wire import map_entities
from klamm.wire.entities import ENTITY_TYPES, map_consumer_protocol
from klamm.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from klamm.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from klamm.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedPartitions
from klamm.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.describe_acls import DescribeAclsRequest
from klamm.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm.wire.primitives import WireError
from klamm.wire.struct_base import copy_message
from tests.unit.wire.strategies import DESCRIBED
from tools.messages.descriptions import committed
from tools.messages.schema import snake

# Fields without an entity type in the descriptions, which `map_entities` maps nevertheless.
UNTYPED = {
    ("ConsumerProtocolSubscription", "Topics"): "topicName",
    ("DeleteShareGroupStateRequest", "GroupId"): "groupId",
    ("InitializeShareGroupStateRequest", "GroupId"): "groupId",
    ("ReadShareGroupStateRequest", "GroupId"): "groupId",
    ("ReadShareGroupStateSummaryRequest", "GroupId"): "groupId",
    ("WriteShareGroupStateRequest", "GroupId"): "groupId",
}
CODES = {
    "config": {2: "topicName", 32: "groupId"},
    "acl": {2: "topicName", 3: "groupId", 5: "transactionalId"},
    "coordinator": {0: "groupId", 1: "transactionalId"},
}


def marked(value):
    return value + 1 if isinstance(value, int) else f"{value}!"


def unmarked(value):
    return value - 1 if isinstance(value, int) else value.removesuffix("!")


def typed_by_code(message, name, struct):
    """Return the entity type of a field whose type depends on another field of its struct."""
    if name == "ResourceName" and "resource_type" in struct.__slots__:
        return CODES["acl" if "Acls" in message else "config"].get(struct.resource_type)
    if name == "ResourceNameFilter":
        return CODES["acl"].get(struct.resource_type_filter)
    if message == "FindCoordinatorRequest" and name in ("Key", "CoordinatorKeys"):
        return CODES["coordinator"].get(struct.key_type)
    return None


def expected(message, struct, fields, common, kind):
    """Return the struct as a nested dictionary. Every name of this type is marked in it."""
    found = {}
    for raw in fields:
        value = getattr(struct, snake(raw["name"]))
        below = raw.get("fields") or common.get(raw["type"].removeprefix("[]"))
        typed = raw.get("entityType") or UNTYPED.get((message, raw["name"]))
        typed = typed or typed_by_code(message, raw["name"], struct)
        older = {"V3AndBelowProducerId": "transactions", "NodeId": "coordinators"}.get(raw["name"])
        if older in getattr(struct, "__slots__", ()) and getattr(struct, older):
            typed = None

        def one(value, below=below, typed=typed):
            if below is not None and value is not None:
                return expected(message, value, below, common, kind)
            names = value >= 0 if type(value) is int else bool(value)
            return marked(value) if typed == kind and names else value

        found[snake(raw["name"])] = [one(item) for item in value] if isinstance(value, list) else one(value)
    return found


def as_dict(value):
    if isinstance(value, list):
        return [as_dict(item) for item in value]
    return {name: as_dict(getattr(value, name)) for name in value.__slots__} if hasattr(value, "__slots__") else value


@pytest.mark.parametrize("described", DESCRIBED, ids=repr)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_exactly_the_names_of_a_type_are_mapped(described, data):
    raw = committed()[described.name]
    common = {one["name"]: one["fields"] for one in raw.get("commonStructs", [])}
    version = data.draw(st.sampled_from(list(described.versions)))
    message = data.draw(described.values(version))
    for kind in ENTITY_TYPES:
        copy = copy_message(message)
        assert map_entities(copy, kind, marked) is copy
        assert as_dict(copy) == expected(described.name, message, raw["fields"], common, kind)
        if kind in ("topicName", "groupId", "transactionalId"):
            copy.encode(version)
            assert map_entities(copy, kind, unmarked) == message


def test_the_descriptions_have_only_known_entity_types():
    kinds = set()

    def look(fields):
        for raw in fields:
            kinds.add(raw.get("entityType"))
            look(raw.get("fields", []))

    for raw in committed().values():
        look(raw["fields"])
        for struct in raw.get("commonStructs", []):
            look(struct["fields"])
    assert kinds - {None} == set(ENTITY_TYPES)


def test_an_entity_type_that_depends_on_another_field_is_found():
    configs = AlterConfigsRequest(resources=[AlterConfigsResource(code, "n") for code in (2, 4, 8, 32)])
    map_entities(configs, "topicName", marked)
    assert [one.resource_name for one in configs.resources] == ["n!", "n", "n", "n"]
    acls = CreateAclsRequest(creations=[AclCreation(code, "n") for code in (2, 3, 4, 5, 6)])
    map_entities(acls, "groupId", marked)
    assert [one.resource_name for one in acls.creations] == ["n", "n!", "n", "n", "n"]
    assert map_entities(DescribeAclsRequest(2, None), "topicName", marked).resource_name_filter is None
    assert map_entities(FindCoordinatorRequest("t", 1), "transactionalId", marked).key == "t!"
    assert map_entities(FindCoordinatorResponse(node_id=0), "brokerId", marked).node_id == 1


def test_values_that_cannot_be_mapped_are_an_error():
    with pytest.raises(ValueError, match='no entity type "topic"; there are topicName, groupId'):
        map_entities(MetadataRequest(), "topic", marked)
    with pytest.raises(TypeError, match="is not a message"):
        map_entities("a text", "topicName", marked)

    class Encoded(MetadataRequest):
        __slots__ = ()

    with pytest.raises(TypeError, match="keeps its encoded form"):
        map_entities(Encoded(), "topicName", marked)


def subscription(*topics):
    owned = [TopicPartition(topic, [0]) for topic in topics]
    return pack(">h", 1) + ConsumerProtocolSubscription(list(topics), b"data", owned).encode(1)


def assignment(*topics):
    parts = [AssignedPartitions(topic, [0, 1]) for topic in topics]
    return pack(">h", 3) + ConsumerProtocolAssignment(parts).encode(3)


def test_the_bytes_of_the_consumer_protocol_are_mapped():
    join = JoinGroupRequest(
        protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", subscription("a", "b"))]
    )
    assert map_consumer_protocol(join, marked).protocols[0].metadata == subscription("a!", "b!")
    for kind in ("consumer", None):
        sync = SyncGroupRequest(protocol_type=kind, assignments=[SyncGroupRequestAssignment("m", assignment("a"))])
        assert map_consumer_protocol(sync, marked).assignments[0].assignment == assignment("a!")
    member = DescribedGroupMember(member_metadata=subscription("a"), member_assignment=assignment("a"))
    described = DescribeGroupsResponse(groups=[DescribedGroup(protocol_type="consumer", members=[member])])
    map_consumer_protocol(described, marked)
    assert (member.member_metadata, member.member_assignment) == (subscription("a!"), assignment("a!"))


def test_other_bytes_and_unreadable_bytes_stay_unchanged():
    connect = JoinGroupRequest(
        protocol_type="connect", protocols=[JoinGroupRequestProtocol("range", subscription("a"))]
    )
    assert map_consumer_protocol(connect, marked).protocols[0].metadata == subscription("a")
    chance = random.Random(4)
    for data in [b"", b"\0", subscription("a")[:-3], *(chance.randbytes(20) for _ in range(50))]:
        join = JoinGroupRequest(protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", data)])
        map_consumer_protocol(join, lambda name: name)
        assert join.protocols[0].metadata == data
    assert map_consumer_protocol(MetadataRequest(), marked) == MetadataRequest()


def test_unreadable_bytes_raise_if_they_may_not_pass():
    """A reader that accepts any bytes as text, like Java, finds both names in them."""
    unreadable = subscription("a", "b").replace(b"\1b", b"\1\xff")
    join = JoinGroupRequest(protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", unreadable)])
    with pytest.raises(WireError):
        map_consumer_protocol(join, marked, strict=True)
    join.protocols[0].metadata = subscription("a")
    assert map_consumer_protocol(join, marked, strict=True).protocols[0].metadata == subscription("a!")
    join.protocol_type, join.protocols[0].metadata = "connect", unreadable
    assert map_consumer_protocol(join, marked, strict=True).protocols[0].metadata == unreadable
