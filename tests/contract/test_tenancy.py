"""Two tenants with equal names never see each other, through any API and version.

A new API fails the tests until it has a rule. The tests also put every other registered filter before and after
`topic_prefix`.
"""

import itertools
import json
import re

import pytest

from klamm.wire.api_keys import ApiKey, find_spec
from klamm_filters.tenancy.fields import plan_of
from klamm_filters.tenancy.filter import _NAMES, _TEXTS, TopicPrefix
from klamm_filters.tenancy.rules import HARMLESS, MAPPED
from tests.contract.filter_settings import ON_EACH_REQUEST, registered, settings_of
from tests.contract.filtered import API_SETS, served
from tests.contract.gateway_nodes import free_ports
from tests.contract.source_rules import ROOT
from tests.contract.tenants import PREFIXES, WALKS, TenantClient, walk_apis
from tests.contract.test_record_filters import fetch, records_of

DESCRIPTIONS = {raw["name"]: raw for raw in json.loads((ROOT / "tools/messages/descriptions.json").read_text())}
REQUESTS = {raw["apiKey"]: raw for raw in DESCRIPTIONS.values() if raw["type"] == "request"}

OF_THE_CLUSTER = {
    "AlterClientQuotas", "AlterUserScramCredentials", "DescribeClientQuotas", "DescribeQuorum",
    "DescribeUserScramCredentials", "UnregisterBroker", "UpdateFeatures", "AddRaftVoter", "RemoveRaftVoter",
    "UnregisterController",
}  # fmt: skip
BETWEEN_BROKERS = {
    "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "WriteTxnMarkers", "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch", "AlterPartition", "Envelope", "FetchSnapshot", "BrokerRegistration", "BrokerHeartbeat",
    "AllocateProducerIds", "ControllerRegistration", "AssignReplicasToDirs", "UpdateRaftVoter",
    "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
}  # fmt: skip

NAMES_NOTHING = re.compile(
    r"(Member|Instance|GroupInstance|Rack|Cluster|Client|Process|Subtopology|Token|ReplicaDirectory|ClientInstance)Id|Leader"
    r"|Members|Host|ClientHost|Rack|Mechanisms?|AuthBytes|Reason|Hmac|Metrics|RequestedMetrics|Path|LogDir|Documentation"
    r"|Client(Software(Name|Version))|(States|Types)Filter|(State|UnknownState)Filters|(Group|Transaction)State|GroupType"
    r"|Protocol(Type|Name|Data)|AssignorName|ServerAssignor|CommittedMetadata|Metadata|Principal\w*|\w*Principal(Type|Name|Filter)"
    r"|HostFilter|Key|Value|ConfigurationKeys"
)
"""Fields of text and bytes without names of topics, groups or transactional ids, e.g. a member, host or config."""
WITHIN = {
    # Fields whose paths end like this also name no topic.
    "Protocols.Name", "Configs.Name", "Configs.Value", "Synonyms.Name", "Synonyms.Value", "Features.Name",
    "SupportedFeatures.Name", "FinalizedFeatures.Name",
    # These are processors and stores of a topology.
    *(f"{node}.{each}" for node in ("Nodes", "Source", "Processor") for each in ("Name", "Stores", "Successors")),
}  # fmt: skip
BY_RULE = {
    # Rules of single APIs map these fields, or the fields contain bytes of consumers.
    "FindCoordinatorRequest.Key",
    "FindCoordinatorRequest.CoordinatorKeys",
    "FindCoordinatorResponse.Coordinators.Key",
    "ConsumerGroupHeartbeatRequest.SubscribedTopicRegex",
    "ConsumerGroupDescribeResponse.Groups.Members.SubscribedTopicRegex",
    "StreamsGroupHeartbeatRequest.Topology.Subtopologies.SourceTopicRegex",
    "ListTransactionsRequest.TransactionalIdPattern",
    "JoinGroupRequest.Protocols.Metadata",
    "JoinGroupResponse.Members.Metadata",
    "SyncGroupRequest.Assignments.Assignment",
    "SyncGroupResponse.Assignment",
    "DescribeGroupsResponse.Groups.Members.MemberMetadata",
    "DescribeGroupsResponse.Groups.Members.MemberAssignment",
    "DescribeAclsRequest.ResourceNameFilter",
    "DescribeAclsResponse.Resources.ResourceName",
    "CreateAclsRequest.Creations.ResourceName",
    "DeleteAclsRequest.Filters.ResourceNameFilter",
    "DeleteAclsResponse.FilterResults.MatchingAcls.ResourceName",
    "DescribeConfigsRequest.Resources.ResourceName",
    "DescribeConfigsResponse.Results.ResourceName",
    "AlterConfigsRequest.Resources.ResourceName",
    "AlterConfigsResponse.Responses.ResourceName",
    "IncrementalAlterConfigsRequest.Resources.ResourceName",
    "IncrementalAlterConfigsResponse.Responses.ResourceName",
    "ListConfigResourcesResponse.ConfigResources.ResourceName",
}


def fields_of(raw):
    """Return (path, type, entity type) of every field of a message."""
    common = {one["name"]: one["fields"] for one in raw.get("commonStructs", [])}

    def walk(fields, path):
        for field in fields:
            here = f"{path}.{field['name']}"
            kind = field["type"].removeprefix("[]")
            yield here, kind, field.get("entityType")
            yield from walk(field.get("fields") or common.get(kind, []), here)

    return list(walk(raw["fields"], raw["name"]))


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# ---- the descriptions of messages


def test_every_api_has_a_rule_or_is_listed_as_harmless():
    thought_of = {find_spec(key).name for key in (*HARMLESS, *MAPPED)} | OF_THE_CLUSTER | BETWEEN_BROKERS
    assert {raw["name"].removesuffix("Request") for raw in REQUESTS.values()} == thought_of
    assert not set(HARMLESS) & set(MAPPED)


def test_the_filter_gets_requests_of_an_api_without_a_rule():
    assert set(TopicPrefix.api_keys.fget(None)) == {int(key) for key in ApiKey} - HARMLESS


def test_harmless_apis_have_no_fields_with_names():
    for raw in DESCRIPTIONS.values():
        if raw.get("apiKey") in HARMLESS:
            for path, _kind, entity in fields_of(raw):
                assert entity not in _NAMES, path
                assert "Topic" not in path, path
                assert "Group" not in path, path


def test_every_text_field_of_a_mapped_api_has_a_rule():
    unknown = []
    for raw in DESCRIPTIONS.values():
        if raw.get("apiKey") not in MAPPED:
            continue
        for path, kind, entity in fields_of(raw):
            leaf = path.rpartition(".")[2]
            if kind not in ("string", "bytes", "uuid") or entity in _NAMES or path in BY_RULE:
                continue
            if leaf == "TopicId" or snake(leaf) in _TEXTS or NAMES_NOTHING.fullmatch(leaf):
                continue
            if ".".join(path.split(".")[-2:]) not in WITHIN:
                unknown.append(path)
    assert unknown == []


def test_the_message_classes_have_every_topic_id_of_the_descriptions():
    from klamm.wire.api_keys import load

    for raw in DESCRIPTIONS.values():
        if raw.get("apiKey") not in MAPPED:
            continue
        described = {
            path for path, _kind, _entity in fields_of(raw) if snake(path.rpartition(".")[2]) in ("topic_id", *_TEXTS)
        }
        plan = plan_of(vars(load(raw["apiKey"]))[raw["name"]], frozenset({"topic_id", *_TEXTS}))

        def found(plan, path):
            for name in plan.fields if plan else ():
                yield f"{path}.{name}"
            for name, below in plan.below if plan else ():
                yield from found(below, f"{path}.{name}")

        assert set(found(plan, raw["name"])) == {
            ".".join([raw["name"], *(snake(one) for one in path.split(".")[1:])]) for path in described
        }


# ---- the view of a tenant


OTHERS = tuple(name for name in registered() if name != "topic_prefix")
ALONE = ("topic_prefix",)
BEFORE_ALL, BEHIND_ALL = (*ALONE, *OTHERS), (*OTHERS[::-1], *ALONE)
BESIDE = [*((*ALONE, name) for name in OTHERS), *((name, *ALONE) for name in OTHERS)]
IN_CI = [("broker", ALONE), ("gateway", ALONE), ("broker", BEHIND_ALL), ("gateway", BEFORE_ALL)]
STACKS = [
    pytest.param(case, id="-".join((case[0], *case[1])), marks=[] if case in IN_CI else pytest.mark.slow)
    for case in itertools.product(API_SETS, (ALONE, BEFORE_ALL, BEHIND_ALL, *BESIDE))
]


@pytest.fixture(scope="module", params=STACKS)
def tenants(request, tmp_path_factory):
    """Yield the broker and the clients of the tenants `a` and `b`, both of which have created topics."""
    api_set, names = request.param
    settings = ["listeners.default.bind=127.0.0.1:0"]
    for name, prefix in PREFIXES.items():
        settings.append(f"listeners.{name}.bind=127.0.0.1:0")
        folder = tmp_path_factory.mktemp(name)
        settings += settings_of(
            names, folder, name, own={"topic_prefix": (f"prefix={prefix}",), "faults": ON_EACH_REQUEST["faults"]}
        )
        if api_set == "gateway":
            port = free_ports(1)
            settings += [f"listeners.{name}.api_set=gate_{name}", f"gate_{name}.provider=gateway"]
            settings += [f'gate_{name}.bootstrap=["BROKER"]', f"gate_{name}.node_ports={port}-{port}"]
            settings.append(f"gate_{name}.first_node_id=1")
    with served(api_set, settings) as (broker, front):
        pair = {name: TenantClient(front.address(name), name) for name in PREFIXES}
        pair["a"].make(("orders", "only-of-a"))
        pair["b"].make()
        yield broker, pair["a"], pair["b"]
        for one in pair.values():
            one.close()


def test_each_tenant_sees_only_its_own_things(tenants):
    broker, a, b = tenants
    assert [[one.value for one in records_of(fetch(each.client, "orders"))] for each in (a, b)] == [
        [b"value-of-a"],
        [b"value-of-b"],
    ]
    assert [name for name, _, _ in a.state()["topics"]] == ["only-of-a", "orders"]
    state = b.state()
    assert [name for name, _, _ in state["topics"]] == ["orders"]
    assert state["ends"] == [("orders", 1)]
    assert state["offsets"] == [("orders", 1, "metadata-of-b")]
    assert state["groups"] == [("grp", "Stable")]
    assert state["configs"] == [("orders", b.retention_ms)]
    assert set(broker.admin.topics()) == {"tenant-a.only-of-a", "tenant-a.orders", "tenant-b.orders"}
    assert set(broker.admin.groups()) == {"tenant-a.grp", "tenant-b.grp"}


@pytest.mark.parametrize("walk", WALKS)
def test_no_api_shows_or_changes_things_of_the_other_tenant(tenants, walk):
    broker, a, b = tenants
    before = a.state()
    assert len(walk_apis(DESCRIPTIONS, broker.address(), a, b, WALKS[walk])) > 50
    assert a.state() == before
