"""Tests of parts of the gateway without I/O: ports, settings, versions, responses that name nodes, acks."""

import pytest

from klamm import Address
from klamm.forwarding import OpaqueRequest
from klamm.wire.api_keys import ApiKey, load
from klamm.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from klamm.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from klamm.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from klamm.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from klamm.wire.messages.produce import NodeEndpoint, ProduceRequest, ProduceResponse
from klamm_gateway.as_it_came import wants_no_response
from klamm_gateway.forwarded_apis import forwarded_apis
from klamm_gateway.gateway_settings import GatewaySettings
from klamm_gateway.layout import Cluster, Layout, Node, with_versions_of
from klamm_gateway.node_ports import NodeHosts, NodePorts, check_pattern, parse_ports
from klamm_gateway.rewriting import (
    REWRITES,
    NodeAddresses,
    rewrite_describe_cluster,
    rewrite_find_coordinator,
    rewrite_metadata,
    rewrite_node_endpoints,
)


def test_each_node_has_its_own_port():
    ports = NodePorts(range(9093, 9096), 1)
    assert [ports.port_of(node_id) for node_id in range(5)] == [None, 9093, 9094, 9095, None]
    assert [ports.node_at(port) for port in range(9092, 9097)] == [None, 1, 2, 3, None]


@pytest.mark.parametrize(
    "text", ["", "x", "9-", "-9", "9\N{SUPERSCRIPT TWO}", "20-10", "0", "65536", "1-65535", "1-2-3"]
)
def test_an_invalid_range_of_ports_is_refused(text):
    with pytest.raises(ValueError, match=r"must be|is not a range|allowed"):
        parse_ports(text)


@pytest.mark.parametrize("pattern", ["", "broker", "{node}-{node}", "b-{node}.{zone}", "b-{node", "{node}}"])
def test_an_invalid_pattern_of_hosts_is_refused(pattern):
    assert check_pattern(pattern).startswith("must have {node} once")


@pytest.mark.parametrize("pattern", ["{node}", "broker-{node}.{host}", "b{node}.other.example"])
def test_host_patterns_contain_the_node_id(pattern):
    assert check_pattern(pattern) is None
    address = NodeHosts(pattern).address_of(7, Address("front", 9092))
    assert address == (pattern.replace("{node}", "7").replace("{host}", "front"), 9092)


@pytest.mark.parametrize(
    ("wrong", "keys"),
    [
        ({"node_ports": ""}, ["node_ports"]),
        ({"login": "client"}, ["upstream.login"]),
        ({"login": "principal", "security_protocol": "SASL_SSL"}, ["upstream.login"]),
    ],
)
def test_contradictory_settings_of_the_gateway_are_reported(wrong, keys):
    settings = GatewaySettings(("b:1",), **{"node_ports": "9093", **wrong})
    assert [key for key, _ in settings.problems() if "sasl" not in key] == keys


def test_sasl_requires_an_account():
    settings = GatewaySettings(("b:1",), node_ports="9093", security_protocol="SASL_SSL")
    assert [key for key, _ in settings.problems()] == ["upstream.sasl_username", "upstream.sasl_password_file"]


# ---- responses that name nodes


@pytest.fixture
def missed():
    return []


@pytest.fixture
def refreshed():
    return []


@pytest.fixture
def addresses(missed, refreshed):
    """Nodes 1 and 2 are at ports 9093 and 9094. Node 1 is known."""
    cluster = Cluster()
    cluster.refresh = lambda: refreshed.append(True)
    cluster.learn(Layout({1: Node(1, "b1", 10)}))
    return NodeAddresses(Address("front", 9092), NodePorts(range(9093, 9095), 1), cluster, missed.append)


def test_metadata_names_the_gateway(addresses, missed, refreshed):
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(1, "b1", 10, "r"), MetadataResponseBroker(7, "b7", 10)],
        topics=[MetadataResponseTopic(name="t", topic_id=b"i" * 16), MetadataResponseTopic(3, "u")],
    )
    rewrite_metadata(response, addresses)
    assert [(one.node_id, one.host, one.port, one.rack) for one in response.brokers] == [(1, "front", 9093, "r")]
    assert missed == [7]
    assert refreshed, "an unknown node causes a request for a new layout"
    assert addresses.cluster.topic_name(b"i" * 16) == "t"


def test_a_known_node_at_its_known_address_causes_no_refresh(addresses, refreshed):
    rewrite_metadata(MetadataResponse(brokers=[MetadataResponseBroker(1, "b1", 10)]), addresses)
    assert not refreshed
    rewrite_metadata(MetadataResponse(brokers=[MetadataResponseBroker(1, "b1", 11)]), addresses)
    assert refreshed


def test_describe_cluster_names_the_gateway(addresses):
    response = DescribeClusterResponse(brokers=[DescribeClusterBroker(2, "b2", 10), DescribeClusterBroker(7, "b7", 1)])
    rewrite_describe_cluster(response, addresses)
    assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [(2, "front", 9094)]


def test_coordinators_are_named_at_the_gateway_or_not_available(addresses):
    single = FindCoordinatorResponse(node_id=2, host="b2", port=10)
    many = FindCoordinatorResponse(
        coordinators=[Coordinator("a", 1, "b1", 10), Coordinator("b", 9, "b9", 10), Coordinator("c", -1, "", -1, 15)]
    )
    rewrite_find_coordinator(single, addresses)
    rewrite_find_coordinator(many, addresses)
    assert (single.host, single.port) == ("front", 9094)
    found = [(one.key, one.node_id, one.host, one.port, one.error_code) for one in many.coordinators]
    assert found == [("a", 1, "front", 9093, 0), ("b", -1, "", -1, 15), ("c", -1, "", -1, 15)]


def test_new_leaders_are_named_at_the_gateway(addresses):
    response = ProduceResponse(node_endpoints=[NodeEndpoint(1, "b1", 10), NodeEndpoint(9, "b9", 10)])
    rewrite_node_endpoints(response, addresses)
    assert [(one.node_id, one.host, one.port) for one in response.node_endpoints] == [(1, "front", 9093)]


def _fields(kind):
    """Return the names of all fields of the classes in the module of a message class."""
    module = __import__(kind.__module__, fromlist=["x"])
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == kind.__module__]
    return {name for one in classes for name in getattr(one, "__slots__", ())}


def test_every_response_with_hosts_of_nodes_is_rewritten():
    """The test fails for a new API or version whose response names nodes."""
    # The hosts in these responses are of clients, controllers and ACLs. Fetch has hosts of nodes only from version 16
    # on, and the gateway does not offer that version.
    others = {
        ApiKey.FETCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
    }
    naming = set()
    for spec, _versions in forwarded_apis():
        module = load(spec.api_key)
        if any("host" in name or "endpoint" in name for name in _fields(vars(module)[f"{spec.name}Response"])):
            naming.add(ApiKey(spec.api_key))
    assert naming - others == set(REWRITES)


# ---- versions


def versions(*entries):
    return ApiVersionsResponse(api_keys=[ApiVersion(*entry) for entry in entries])


def test_the_gateway_offers_versions_that_all_nodes_know():
    layout = with_versions_of(Layout(), versions((0, 3, 13), (1, 4, 17), (2, 1, 11)))
    layout = with_versions_of(layout, versions((0, 5, 12), (1, 18, 19)))
    assert layout.versions == {0: range(5, 13)}


# ---- acks


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("transactional_id", [None, "t", "t" * 200])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks_are_read_from_the_bytes(version, transactional_id, acks):
    request = ProduceRequest(transactional_id=transactional_id, acks=acks)
    opaque = OpaqueRequest(b"header" + request.encode(version), 6)
    assert wants_no_response(opaque, version) == wants_no_response(request, version) == (acks == 0)
