"""Each request of the console's API, as its OpenAPI description has them: who may send it, and what odd arguments do.

The description is that of a running server, so that a new request is tried without a change here. One with an argument
of a new name may need an entry in `VALUES`.
"""

import json
import urllib.parse

import pytest

from klamm.testing import CertificateFiles, EmbeddedServer, Users
from klamm.testing.secure import secure_settings
from tests.unit.console.conftest import CONSOLE, HOSTILE, Browser, UnhurriedClock, commit

# Arguments with which each request can be answered.
VALUES = {
    "client_id": "a client",
    "config": "retention.ms",
    "host": "*",
    "hours": 24,
    "id": "no such connection",
    "ip": "192.0.2.1",
    "key": "producer_byte_rate",
    "kind": "delay",
    "listener": "secure",
    "mechanism": "SCRAM-SHA-512",
    "offset": 0,
    "operation": "READ",
    "password": "secret",
    "pattern": "LITERAL",
    "permission": "ALLOW",
    "principal": "User:erin",
    "resource": "TOPIC",
    "timestamp_ms": 0,
    "to": "earliest",
    "topic": "orders",
    "user": "erin",
    "value": "1",
    "view": "connections",
}
OWN_VALUES = {
    "access": {"host": "127.0.0.1"},
    "alter_quota": {"value": 1},
    "add_fault": {"kind": "error", "error": "REQUEST_TIMED_OUT", "api": "ListTransactions", "count": 1},
    "advance_time": {"advance_ms": 1},
    "create_topic": {"name": "new", "partitions": 1},
    "delete_group": {"name": "readers"},
    "delete_offsets": {"name": "readers"},
    "group": {"name": "readers"},
    "listener": {"name": "secure"},
    "records": {"key": "k"},
    "reset_offsets": {"name": "readers"},
}
# A request may have only one of these, so the others are left out.
LEFT_OUT = {
    "alter_quota": {"client_id", "ip"},
    "add_fault": {"delay_ms", "topic", "group", "client", "probability"},
}
ENDS_THE_SESSION = {"logout"}
# A text may be all of these, too long, and no text.
ODD_TEXTS = [
    HOSTILE,
    "",
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    "../../../etc/passwd",
    "a\r\nSet-Cookie: klamm=1",
    "a\0b",
    "\ud800",
    "' OR 1=1 --",
    "{{7*7}}${7*7}",
    "x" * 5_000,
    "\U0001f600\u202e",
]
ODD_NUMBERS = [-1, 1 << 31, 1 << 63, 10**400, 1e308, float("nan"), float("-inf")]
ODD_KINDS = [None, True, [], {}, [[["a"]]], {"a": 1}]


class Request:
    """A request of the description, with the arguments that it needs and may have."""

    def __init__(self, path, method, described):
        self.name, self.method = path.removeprefix("/api/"), method.upper()
        self.is_open = described.get("security") == []
        self.right = described.get("description", "")
        self.is_stream = "text/event-stream" in described["responses"]["200"]["content"]
        self.statuses = {int(status) for status in described["responses"]}
        body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        self.kinds = {name: schema["type"] for name, schema in body.get("properties", {}).items()}
        self.kinds |= {each["name"]: each["schema"]["type"] for each in described.get("parameters", ())}
        self.kinds = {name: kind if isinstance(kind, str) else kind[0] for name, kind in self.kinds.items()}

    def __repr__(self):
        return f"{self.method} {self.name}"

    @property
    def arguments(self):
        kinds = {name: kind for name, kind in self.kinds.items() if name not in LEFT_OUT.get(self.name, ())}
        usual = {name: VALUES.get(name, {"integer": 0, "number": 0, "boolean": True}.get(kind, "orders"))
                 for name, kind in kinds.items()}  # fmt: skip
        return usual | {name: value for name, value in OWN_VALUES.get(self.name, {}).items() if name in kinds}

    def send(self, page, arguments, **headers):
        """Return the status, the content, and the content's text."""
        if self.method == "POST":
            status, content = page.send("POST", f"/api/{self.name}", json.dumps(arguments), **headers)
        else:
            # An answer without an end has only its headers.
            query = urllib.parse.urlencode(arguments, errors="surrogatepass")
            method = "HEAD" if self.is_stream else "GET"
            status, content = page.send(method, f"/api/{self.name}?{query}", **headers)
        return status, json.loads(content or b"null"), content.decode()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    files_ = CertificateFiles(str(tmp_path_factory.mktemp("tls")))
    settings = [
        *secure_settings(files_),
        *CONSOLE,
        f"console.ca_file={files_.ca}",
        "listeners.secure.connection_failed_authentication_delay_ms=0",
        'listeners.secure.filters=["faults"]',
        'listeners.secure.observers=["recording"]',
    ]
    with EmbeddedServer(settings, clock=UnhurriedClock()) as running:
        users = Users(running.admin, files_.ca)
        for name in ("admin", "alice", "dora"):
            users.add(name)
        running.acls.allow("dora", "DESCRIBE", "CLUSTER", "kafka-cluster")
        running.create_topic("orders")
        running.produce("orders", "a")
        commit(running, "readers", "orders", 0)
        yield running


@pytest.fixture(scope="module")
def requests(served):
    document = Browser(served)("openapi.json")[1]
    found = [Request(path, *one) for path, methods in document["paths"].items() for one in methods.items()]
    return [each for each in found if each.name not in ENDS_THE_SESSION]


@pytest.fixture
def log_in(served):
    def log_in(user):
        page = Browser(served)
        assert page.log_in(user)[0] == 200
        return page

    return log_in


def state(served, log_in):
    """Return what a user may change."""
    page = log_in("admin")
    views = {name: page(name)[1] for name in ("topics", "groups", "quotas", "users", "acls", "topic?name=orders")}
    return views | {"faults": page("test_kit")[1]["faults"], "ahead": served.server.services.clock._ahead_ns}


def test_without_a_login_nothing_is_shown_or_done(served, requests, log_in):
    before = state(served, log_in)
    found = {each: each.send(Browser(served), each.arguments)[0] for each in requests if not each.is_open}
    assert found == dict.fromkeys(found, 401)
    assert state(served, log_in) == before


def test_other_pages_cannot_send_requests_for_a_user(served, requests, log_in):
    page, before = log_in("admin"), state(served, log_in)
    secret, wrong = page.csrf, {}
    for each in (one for one in requests if not one.is_open):
        page.csrf = ""
        without_secret = each.send(page, each.arguments)[0]
        page.csrf = secret
        other_name = each.send(page, each.arguments, Host="evil.example:80")[0]
        form = 415
        if each.method == "POST":
            form = each.send(page, each.arguments, **{"Content-Type": "text/plain"})[0]
        other_method = page.send("GET" if each.method == "POST" else "POST", f"/api/{each.name}", "{}")[0]
        if (without_secret, other_name, form, other_method) != (401, 421, 415, 404):
            wrong[each] = without_secret, other_name, form, other_method
    assert wrong == {}
    assert state(served, log_in) == before


def test_a_user_without_rights_sees_and_changes_nothing(served, requests, log_in):
    page, before, wrong = log_in("alice"), state(served, log_in), {}
    for each in (one for one in requests if not one.is_open):
        status, content, _ = each.send(page, each.arguments)
        if status != 403 and (status, content) != (200, []):
            wrong[each] = status, content
    assert wrong == {}
    assert state(served, log_in) == before


def test_who_may_describe_the_cluster_sees_the_server_and_changes_nothing(served, requests, log_in):
    page, before, wrong = log_in("dora"), state(served, log_in), {}
    for each in (one for one in requests if not one.is_open):
        status, content, _ = each.send(page, each.arguments)
        may = "right Describe" in each.right or each.is_stream
        # Kafka lets a user who may describe the cluster see groups and credentials.
        expected = {200} if may else {403} if each.method == "POST" or each.right else {200, 403}
        if status not in expected:
            wrong[each] = status, content
    assert wrong == {}
    assert state(served, log_in) == before


def test_who_may_alter_the_cluster_is_not_refused(served, requests, log_in):
    page, refused = log_in("admin"), {}
    for each in (one for one in requests if not one.is_open):
        status, content, _ = each.send(page, each.arguments)
        # 409: there is no such connection, or the server has one node.
        if status not in (200, 409):
            refused[each] = status, content
    assert refused == {}
    served.server.services.shared.find("klamm.faults").clear()
    # It was deleted.
    served.create_topic("orders")


def odd_arguments(request):
    """Yield arguments of which one is odd; a query has texts alone."""
    for name, kind in request.kinds.items():
        odd = (
            [*ODD_TEXTS, *ODD_NUMBERS, *ODD_KINDS] if request.method == "POST" else [*ODD_TEXTS, *map(str, ODD_NUMBERS)]
        )
        for value in odd:
            # The time of this server moves on by this one.
            if not (name == "advance_ms" and kind == "integer" and value == 1 << 31):
                yield {**request.arguments, name: value}


def test_odd_arguments_get_an_answer_that_the_description_has(served, requests, log_in, caplog):
    page, wrong = log_in("admin"), []
    for each in requests:
        for arguments in odd_arguments(each):
            status, content, text = each.send(page, arguments)
            served.server.services.shared.find("klamm.faults").clear()
            kind, policy = page.headers["Content-Type"], page.headers["Content-Security-Policy"]
            is_error = status == 200 or content is None or content.keys() == {"error", "name"}
            is_safe = kind in ("application/json", "text/event-stream") and "default-src 'none'" in policy
            if status == 500 or status not in each.statuses or not is_error or not is_safe or "Traceback" in text:
                wrong.append((each, arguments, status, text[:200]))
            if status == 401 and not each.is_open:
                page = log_in("admin")
    assert wrong == []
    assert "Traceback" not in caplog.text


def test_no_argument_becomes_a_header(served, requests, log_in):
    page = log_in("admin")
    for each in requests:
        for arguments in odd_arguments(each):
            if "\r\n" in str(arguments):
                each.send(page, arguments)
                served.server.services.shared.find("klamm.faults").clear()
                assert page.headers.get("Set-Cookie", "") == "", each
