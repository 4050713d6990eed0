"""The authorizer `opa` beside klamm's own ACLs, and with a server that is slow, down, or wrong."""

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import klamm_opa
from klamm import Address, ConfigError, ErrorCode, KafkaPrincipal
from klamm.acl import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from klamm.testing import Decision, EmbeddedServer, MemoryListener, RawClient, check_authorizer
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_authorizers.acl import AclAuthorizer
from klamm_authorizers.authorizer_settings import AclSettings
from klamm_opa.authorizer import OpaAuthorizer, OpaSettings

PATIENCE_S = 60
ALICE, TOPIC = KafkaPrincipal("alice"), ResourceType.TOPIC
OPERATIONS = [one for one in AclOperation if one > AclOperation.ALL]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID]
HOSTS = ["10.0.0.1", "10.0.0.2"]
IMPLIED = {"DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"}, "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"}}


class Opa(ThreadingHTTPServer):
    """A server whose rule `kafka/operations` is the function `policy`; it waits while `go_on` is cleared."""

    daemon_threads = True

    def __init__(self, policy):
        super().__init__(("127.0.0.1", 0), Handler)
        self.policy, self.go_on, self.asked = policy, threading.Event(), threading.Event()
        self.go_on.set()
        self.status, self.hangs_up, self.connections = 200, False, 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """Print nothing if the client has not waited."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.server.connections += 1

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.close_connection = self.server.hangs_up
        self.server.asked.set()
        self.server.go_on.wait(PATIENCE_S)
        is_known = self.path == "/v1/data/kafka/operations"
        content = json.dumps({"result": self.server.policy(asked)} if is_known else {}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        """Tests print nothing."""


def only_alice(asked):
    return ["ALL"] if asked["principal"] == "User:alice" and asked["resource_name"].startswith("orders") else []


@pytest.fixture
def opa():
    with Opa(only_alice) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.go_on.set()
        server.shutdown()


@pytest.fixture
def opened(opa):
    authorizer = OpaAuthorizer(OpaSettings(url=opa.url))
    authorizer.open(MemoryListener().context)
    yield authorizer
    authorizer.close()


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


def policy_of(bindings):
    """Return a policy with Kafka's rules: a denial wins, and some permissions also allow to describe."""

    def matches(one, asked):
        name = asked["resource_name"]
        is_prefix = one.pattern_type is PatternType.PREFIXED and name.startswith(one.resource_name)
        return (
            one.resource_type.name == asked["resource_type"]
            and (is_prefix or (one.pattern_type is PatternType.LITERAL and one.resource_name in (name, "*")))
            and one.principal in (asked["principal"], "User:*")
            and one.host in (asked["host"], "*")
        )

    def policy(asked):
        rules = [one for one in bindings if matches(one, asked)]
        denied = {one.operation.name for one in rules if one.permission is AclPermission.DENY}
        allowed = {one.operation.name for one in rules if one.permission is AclPermission.ALLOW}
        names = [one.name for one in OPERATIONS]
        return [
            name
            for name in names
            if not denied & {name, "ALL"} and allowed & ({name, "ALL"} | IMPLIED.get(name, set()))
        ]

    return policy


def settle(authorizer, context, resources):
    """Wait as a request does."""
    released, release = threading.Event(), authorizer.prepare(context, resources)
    if release is not None:
        release.when_released(released.set)
        assert released.wait(PATIENCE_S)


def test_ten_thousand_decisions_are_those_of_klamms_acls(opa):
    draw = random.Random(2026)
    bindings = list(dict.fromkeys(bindings_of(draw)))
    opa.policy = policy_of(bindings)
    listener = MemoryListener()
    own, asking = AclAuthorizer(AclSettings()), OpaAuthorizer(OpaSettings(url=opa.url, timeout_ms=PATIENCE_S * 1000))
    for authorizer in (own, asking):
        authorizer.open(listener.context)
    assert own.create_acls(bindings) == [None] * len(bindings)
    allowed = 0
    for _ in range(1_000):
        principal = KafkaPrincipal(draw.choice(["alice", "bob", "carol"]))
        address = Address(draw.choice(HOSTS), draw.randint(1024, 65_535))
        context = listener.request(MetadataRequest(), 9, listener.connection(principal, address))
        resource = draw.choice(TYPES), name_of(draw)
        settle(asking, context, [resource])
        for operation in draw.sample(OPERATIONS, 10):
            expected = own.authorize(context, operation, *resource)
            assert asking.authorize(context, operation, *resource) is expected, (context.principal, operation, resource)
            allowed += expected
    asking.close()
    own.close()
    assert 2_000 < allowed < 8_000


def test_a_connection_serves_many_decisions_and_a_lost_one_is_replaced(opa, opened):
    for hangs_up, connections in ((False, 1), (True, 1), (False, 2), (False, 2)):
        opa.hangs_up = hangs_up
        assert AclOperation.READ in opened.permitted(ALICE, "10.0.0.1", TOPIC, "orders")
        assert opa.connections == connections


@pytest.mark.parametrize("result", [None, "READ", {"READ": True}, ["READ", "FLY"], [["READ"]], ["READ"] * 20_000])
def test_another_answer_is_a_failure(opa, opened, result):
    opa.policy = lambda asked: result
    with pytest.raises((ValueError, TypeError)):
        opened.permitted(ALICE, "10.0.0.1", TOPIC, "orders")


def test_another_status_is_a_failure(opa, opened):
    opa.status = 500
    with pytest.raises(ValueError, match="status 500"):
        opened.permitted(ALICE, "10.0.0.1", TOPIC, "orders")


def test_a_rule_that_does_not_exist_allows_nothing(opa):
    authorizer = OpaAuthorizer(OpaSettings(url=opa.url, path="kafka/other"))
    authorizer.open(MemoryListener().context)
    assert authorizer.permitted(ALICE, "10.0.0.1", TOPIC, "orders") == []
    authorizer.close()


def described(opa, *settings):
    """Return the error code of the topic `orders` in an answer to an anonymous client."""
    settings = ["listeners.default.authorizer=opa", f"listeners.default.opa.url={opa.url}", *settings]
    request = MetadataRequest([MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    with EmbeddedServer(settings, plugins=[klamm_opa]) as server:
        server.api_set().topics.create("orders", 1, {})
        with RawClient(server.address()) as client:
            return client.call(request, 9).topics[0].error_code


@pytest.mark.parametrize(
    ("result", "expected"), [(["DESCRIBE"], ErrorCode.NONE), ([], ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
)
def test_a_client_gets_what_the_policy_allows(opa, result, expected):
    opa.policy = lambda asked: result
    assert described(opa, f"listeners.default.opa.timeout_ms={PATIENCE_S * 1000}") == expected


def test_a_server_that_is_down_denies(opa):
    opa.policy = lambda asked: ["ALL"]
    opa.shutdown()
    opa.server_close()
    assert described(opa) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_slow_server_denies_after_the_time_limit(opa):
    opa.policy = lambda asked: ["ALL"]
    opa.go_on.clear()
    assert described(opa, "listeners.default.opa.timeout_ms=50") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert opa.asked.wait(PATIENCE_S)


@pytest.mark.parametrize("url", ["127.0.0.1:8181", "http://", "http://a:port", "http://ann:secret@a", "http://a?b"])
def test_a_wrong_url_is_refused(url):
    with pytest.raises(ConfigError, match="must be http"):
        EmbeddedServer(
            ["listeners.default.authorizer=opa", f"listeners.default.opa.url={url}"], plugins=[klamm_opa]
        ).start()


def test_it_keeps_its_contract(opa):
    check_authorizer(
        OpaAuthorizer,
        OpaSettings(url=opa.url),
        decisions=[
            Decision("User:alice", AclOperation.READ, TOPIC, "orders", True),
            Decision("User:bob", AclOperation.READ, TOPIC, "orders", False),
        ],
    )
