"""The authorizer `cedar` beside klamm's own ACLs, and with files that are wrong."""

import json
import random
import threading

import pytest

import klamm_cedar
from klamm import Address, ErrorCode, KafkaPrincipal
from klamm.acl import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from klamm.testing import Decision, EmbeddedServer, MemoryListener, RawClient, check_authorizer
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_authorizers.acl import AclAuthorizer
from klamm_authorizers.authorizer_settings import AclSettings
from klamm_cedar.authorizer import CedarAuthorizer, CedarSettings

PATIENCE_S = 60
ALICE, BOB, TOPIC = KafkaPrincipal("alice"), KafkaPrincipal("bob"), ResourceType.TOPIC
READ = AclOperation.READ
OPERATIONS = [one for one in AclOperation if one > AclOperation.ALL]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID]
HOSTS = ["10.0.0.1", "10.0.0.2"]
IMPLIED = {
    AclOperation.READ: "DESCRIBE",
    AclOperation.WRITE: "DESCRIBE",
    AclOperation.DELETE: "DESCRIBE",
    AclOperation.ALTER: "DESCRIBE",
    AclOperation.ALTER_CONFIGS: "DESCRIBE_CONFIGS",
}
ONLY_ALICE = 'permit (principal == User::"alice", action, resource is Topic) when { context.name like "orders*" };'


class Opened:
    """An open authorizer with files that a test can change."""

    def __init__(self, folder, policies, entities=None):
        self.policies, self.entities = folder / "kafka.cedar", folder / "groups.json"
        self.policies.write_text(policies)
        if entities is not None:
            self.entities.write_text(json.dumps(entities))
        file = self.entities if entities is not None else None
        self.listener = MemoryListener()
        self.settings = CedarSettings(policies=self.policies, entities=file, timeout_ms=PATIENCE_S * 1000)
        self.authorizer = CedarAuthorizer(self.settings)
        self.authorizer.open(self.listener.context)

    def permitted(self, principal=ALICE, name="orders", host="10.0.0.1"):
        return self.authorizer.permitted(principal, host, TOPIC, name)

    def context(self, principal=ALICE, host="10.0.0.1"):
        connection = self.listener.connection(principal, Address(host, 40_000))
        return self.listener.request(MetadataRequest(), 9, connection)

    def settle(self, context, resources):
        """Wait as a request does."""
        released, release = threading.Event(), self.authorizer.prepare(context, resources)
        if release is not None:
            release.when_released(released.set)
            assert released.wait(PATIENCE_S)


@pytest.fixture
def opened(tmp_path):
    made = []

    def make(policies=ONLY_ALICE, entities=None):
        made.append(Opened(tmp_path, policies, entities))
        return made[-1]

    yield make
    for one in made:
        one.authorizer.close()


def bindings_of(draw):
    """Yield rules. Many of them match the same resource."""
    for _ in range(80):
        pattern = draw.choice([PatternType.LITERAL, PatternType.PREFIXED])
        name = "*" if pattern is PatternType.LITERAL and draw.random() < 0.2 else name_of(draw)
        principal = draw.choice(["User:alice", "User:bob", "User:*"])
        operation = draw.choice([AclOperation.ALL, *OPERATIONS])
        permission = AclPermission.DENY if draw.random() < 0.25 else AclPermission.ALLOW
        host = draw.choice([*HOSTS, "*"])
        yield AclBinding(draw.choice(TYPES), name, pattern, principal, host, operation, permission)


def name_of(draw):
    return "".join(draw.choices("ab", k=draw.randint(1, 4)))


def word(name):
    return name.title().replace("_", "")


def policy_of(rule):
    """Return a rule of Kafka as a policy."""
    is_allow = rule.permission is AclPermission.ALLOW
    principal, _, user = rule.principal.partition(":")
    names = [rule.operation.name, *([IMPLIED[rule.operation]] if is_allow and rule.operation in IMPLIED else [])]
    if rule.operation is AclOperation.ALL:
        names = [one.name for one in OPERATIONS]
    conditions = ["true"]
    if rule.host != "*":
        conditions.append(f'context.host == "{rule.host}"')
    if rule.pattern_type is PatternType.PREFIXED:
        conditions.append(f'context.name like "{rule.resource_name}*"')
    elif rule.resource_name != "*":
        conditions.append(f'context.name == "{rule.resource_name}"')
    return (
        f"{'permit' if is_allow else 'forbid'} ("
        f"principal{'' if user == '*' else f' == {principal}::{json.dumps(user)}'}, "
        f"action in [{', '.join(f'Action::{json.dumps(word(one))}' for one in names)}], "
        f"resource is {word(rule.resource_type.name)}) when {{ {' && '.join(conditions)} }};"
    )


def test_ten_thousand_decisions_are_those_of_klamms_acls(opened):
    draw = random.Random(2026)
    bindings = list(dict.fromkeys(bindings_of(draw)))
    cedar, own = opened("\n".join(map(policy_of, bindings))), AclAuthorizer(AclSettings())
    own.open(cedar.listener.context)
    assert own.create_acls(bindings) == [None] * len(bindings)
    allowed = 0
    for _ in range(1_000):
        context = cedar.context(KafkaPrincipal(draw.choice(["alice", "bob", "carol"])), draw.choice(HOSTS))
        resource = draw.choice(TYPES), name_of(draw)
        cedar.settle(context, [resource])
        for operation in draw.sample(OPERATIONS, 10):
            expected = own.authorize(context, operation, *resource)
            assert cedar.authorizer.authorize(context, operation, *resource) is expected, (operation, resource)
            allowed += expected
    own.close()
    assert 2_000 < allowed < 8_000


def test_members_of_a_group_have_its_rights(opened):
    entities = [{"uid": {"type": "User", "id": "alice"}, "attrs": {}, "parents": [{"type": "Group", "id": "shop"}]}]
    it = opened('permit (principal in Group::"shop", action == Action::"Read", resource);', entities)
    assert it.permitted() == [READ]
    assert it.permitted(BOB) == []


def test_addresses_can_be_compared(opened):
    it = opened('permit (principal, action, resource) when { ip(context.host).isInRange(ip("10.0.0.0/8")) };')
    assert READ in it.permitted()
    assert it.permitted(host="192.0.2.1") == []


@pytest.mark.parametrize("name", ['"', "\n", '") };', "\\", "\u202e", "n" * 30_000])
def test_no_name_is_read_as_a_policy(opened, name):
    it = opened('permit (principal == User::"alice", action == Action::"Read", resource == Topic::"orders");')
    assert it.permitted(name=name) == []
    assert it.permitted(KafkaPrincipal(name)) == []


def test_a_policy_that_fails_denies(opened):
    it = opened("permit (principal, action, resource); forbid (principal, action, resource) when { context.no };")
    with pytest.raises(ValueError, match="a policy fails"):
        it.permitted()


def test_new_policies_hold_at_once(opened):
    it = opened()
    context, resources = it.context(), [(TOPIC, "orders")]
    it.settle(context, resources)
    assert it.authorizer.authorize(context, READ, TOPIC, "orders")
    it.policies.write_text('permit (principal == User::"bob", action, resource);')
    it.authorizer.reload()
    it.settle(context, resources)
    assert not it.authorizer.authorize(context, READ, TOPIC, "orders")


@pytest.mark.parametrize("text", ["permit (principal", "allow all;", "\0"])
def test_wrong_policies_leave_the_old_ones(opened, text):
    it = opened()
    it.policies.write_text(text)
    with pytest.raises(ValueError, match=r"kafka\.cedar"):
        it.authorizer.reload()
    assert READ in it.permitted()


@pytest.mark.parametrize(
    ("user", "expected"), [("ANONYMOUS", ErrorCode.NONE), ("bob", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
)
def test_a_client_gets_what_the_policies_allow(tmp_path, user, expected):
    file = tmp_path / "kafka.cedar"
    file.write_text(ONLY_ALICE.replace("alice", user))
    settings = [
        "listeners.default.authorizer=cedar",
        f"listeners.default.cedar.policies={file}",
        f"listeners.default.cedar.timeout_ms={PATIENCE_S * 1000}",
    ]
    request = MetadataRequest([MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    with EmbeddedServer(settings, plugins=[klamm_cedar]) as server:
        server.api_set().topics.create("orders", 1, {})
        with RawClient(server.address()) as client:
            assert client.call(request, 9).topics[0].error_code == expected


def test_it_keeps_its_contract(opened):
    check_authorizer(
        CedarAuthorizer,
        opened().settings,
        decisions=[
            Decision("User:alice", READ, TOPIC, "orders", True),
            Decision("User:bob", READ, TOPIC, "orders", False),
        ],
    )
