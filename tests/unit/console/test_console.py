"""The console's JSON API and its page, over real listeners."""

import http.client
import io
import json
import re
import socket
import time
import urllib.parse
from importlib.resources import files

import pytest

from klamm import Address, ListenerContext
from klamm.acl import AclOperation, LaterAuthorizer, LaterSettings
from klamm.config.problems import ConfigError
from klamm.server.parts import StartError
from klamm.testing import CertificateFiles, EmbeddedServer, MovingClock, RawClient, Users
from klamm.testing.secure import secure_settings
from klamm.wire.compression import Codec
from klamm.wire.messages import offset_commit, produce
from klamm.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.records import Record, encode_batch
from klamm_console import access, avro, schemas
from klamm_console import sessions as console_sessions
from klamm_console.extension import Console
from tests.spark.browser import chromium

CONSOLE = ['server.extensions=["console"]', "console.bind=127.0.0.1:0"]
HOSTILE = "<img src=x onerror=alert(1)>\"'\u202e"
PAGES = ("server", "connections", "topics", "groups", "transactions", "quotas", "acls")


class UnhurriedClock(MovingClock):
    """Goes 50 times slower than the machine's: 25 logins are within a second on a busy machine, too."""

    def monotonic_ns(self):
        return time.monotonic_ns() // 50 + self._ahead_ns


class Browser:
    """Keeps the cookie and the secret of the page, as a browser does."""

    def __init__(self, server):
        extension = next(each for each in server.server.extensions if isinstance(each, Console))
        parts = urllib.parse.urlsplit(extension.url)
        self.address = parts.hostname, parts.port
        self.token = parts.fragment.removeprefix("token=")
        self.cookie = self.csrf = ""
        self.headers = {}

    def send(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        sent = {"Cookie": f'other={{"a":"b"}}; {self.cookie}', "X-Klamm-Csrf": self.csrf}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection.request(method, path, body, sent | headers)
        answer = connection.getresponse()
        content = answer.read()
        self.headers = dict(answer.getheaders())
        connection.close()
        return answer.status, content

    def __call__(self, path, body=None, **headers):
        method = "GET" if body is None else "POST"
        status, content = self.send(method, f"/api/{path}", None if body is None else json.dumps(body), **headers)
        cookie = self.headers.get("Set-Cookie", "")
        self.cookie = cookie.partition(";")[0] or self.cookie
        found = json.loads(content)
        if isinstance(found, dict):
            self.csrf = found.get("csrf", self.csrf)
        return status, found

    def log_in(self, user="", password="secret"):
        return self("login", {"user": user, "password": password} if user else {"token": self.token})


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer(CONSOLE) as running:
        yield running


@pytest.fixture
def browser(server):
    server.reset()
    made = Browser(server)
    assert made.log_in()[0] == 200
    return made


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    files_ = CertificateFiles(str(tmp_path_factory.mktemp("tls")))
    settings = [
        *secure_settings(files_),
        *CONSOLE,
        f"console.ca_file={files_.ca}",
        "listeners.secure.connection_failed_authentication_delay_ms=0",
    ]
    with EmbeddedServer(settings, clock=UnhurriedClock()) as running:
        users = Users(running.admin, files_.ca)
        for name in ("admin", "alice", "gone"):
            users.add(name)
        running.create_topic("orders")
        running.create_topic("payroll")
        running.acls.allow("alice", "READ", "TOPIC", "orders")
        yield running


# ---- login


def test_nothing_is_shown_before_the_login(server):
    visitor = Browser(server)
    for page in PAGES:
        assert visitor(page)[0] == 401
    assert visitor("create_topic", {"name": "t"})[0] == 401
    assert visitor("session")[1]["needs_token"] is True


def test_a_wrong_token_is_refused_and_guesses_are_limited():
    with EmbeddedServer(CONSOLE, clock=UnhurriedClock()) as running:
        guesser = Browser(running)
        guesser.token = "guess"
        assert [guesser.log_in()[0] for _ in range(25)] == [401] * 20 + [429] * 5
        assert Browser(running).log_in()[0] == 200, "who has the token is let in"
        running.advance_ms(1_000)
        assert guesser.log_in()[0] == 401


def test_the_cookie_is_for_this_site_and_not_for_scripts(browser, server):
    other = Browser(server)
    other.send("POST", "/api/login", json.dumps({"token": other.token}))
    flags = other.headers["Set-Cookie"]
    assert "HttpOnly" in flags
    assert "SameSite=Strict" in flags


def test_a_user_logs_in_over_tls_and_scram_and_sees_what_the_user_may(secure):
    alice = Browser(secure)
    assert alice("session")[1]["mechanisms"] == ["SCRAM-SHA-512"]
    assert alice.log_in("alice", "wrong")[0] == 401
    assert alice.log_in("alice") == (200, {"user": "alice", "csrf": alice.csrf})
    assert [row["name"] for row in alice("topics")[1]] == ["orders"]
    status, answer = alice("records?name=payroll")
    assert (status, answer["name"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
    assert [alice(page)[0] for page in ("server", "connections", "acls", "quotas")] == [403] * 4
    assert access_of(alice, principal="User:alice", resource="TOPIC", name="orders")[0] == 403
    assert alice("delete_topic", {"name": "payroll"})[0] == 403
    assert alice("close_connection", {"id": "x"})[0] == 403


def access_of(browser, **query):
    return browser(f"access?{urllib.parse.urlencode(query)}")


def test_it_says_who_may_do_what_and_why_not(secure):
    admin = Browser(secure)
    admin.log_in("admin")
    status, found = access_of(admin, principal="alice", resource="TOPIC", name="orders", host="192.0.2.7")
    assert (status, found["principal"], found["host"]) == (200, "User:alice", "192.0.2.7")
    rows = {row["operation"]: row for row in found["operations"]}
    assert [rows[name]["allowed"] for name in ("READ", "DESCRIBE", "WRITE")] == [True, True, False]
    assert rows["READ"]["rule"] == {
        "resource": "TOPIC",
        "name": "orders",
        "pattern": "LITERAL",
        "principal": "User:alice",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    assert (rows["WRITE"]["reason"], rows["WRITE"]["rule"]) == ("no rule allows it", None)
    (row,) = access_of(admin, principal="User:admin", resource="CLUSTER", operation="ALTER")[1]["operations"]
    assert (row["allowed"], row["decided_by"]) == (True, "super_user")
    other = access_of(admin, principal="Group:alice", resource="TOPIC", name="orders", operation="READ")[1]
    assert other["operations"][0]["allowed"] is False


@pytest.mark.parametrize(
    "query",
    [
        {"resource": "TOPIC"},
        {"principal": "x" * 5_000, "resource": "TOPIC"},
        {"principal": "User:alice", "resource": "ANY"},
        {"principal": "User:alice", "resource": "TOPIC", "operation": "CREATE_TOKENS"},
        {"principal": "User:alice", "resource": "TOPIC", "host": "example.org"},
        {"principal": "User:alice", "resource": "TOPIC", "listener": "none"},
    ],
)
def test_bad_questions_about_rights_are_refused(secure, query):
    admin = Browser(secure)
    admin.log_in("admin")
    assert access_of(admin, **query)[0] == 400


def test_without_an_authorizer_everything_is_allowed(browser):
    (row,) = access_of(browser, principal=HOSTILE, resource="TOPIC", name=HOSTILE, operation="READ")[1]["operations"]
    assert row["allowed"] is True
    assert "no authorizer" in row["reason"]


def test_an_authorizer_that_fails_denies():
    class Broken:
        def prepare(self, _context, _resources):
            return None

        def decide(self, *_arguments, **_options):
            raise ZeroDivisionError

    listener = ListenerContext("default", Address("127.0.0.1", 1), Address("127.0.0.1", 1), authorizer=Broken())
    (row,) = access.rights(listener, "User:admin", "::1", "CLUSTER", "", "ALTER")["operations"]
    assert row["allowed"] is False
    assert "ZeroDivisionError" in row["reason"]


def test_an_authorizer_that_decides_later_is_waited_for():
    class Later(LaterAuthorizer):
        def permitted(self, principal, _host, _resource_type, name):
            return [AclOperation.READ] if (str(principal), name) == ("User:alice", "orders") else []

    listener = ListenerContext("default", Address("127.0.0.1", 1), Address("127.0.0.1", 1))
    listener.authorizer = Later(LaterSettings(timeout_ms=60_000))
    listener.authorizer.open(listener)
    found = access.rights(listener, "alice", "::1", "TOPIC", "orders", "")
    listener.authorizer.close()
    assert [row["operation"] for row in found["operations"] if row["allowed"]] == ["READ"]


def test_certificates_are_shown_with_their_end(secure):
    admin = Browser(secure)
    admin.log_in("admin")
    rows = admin("server")[1]["certificates"]
    assert rows
    assert all(row["listener"] and row["server_name"] and row["seconds"] > 0 for row in rows)


def test_an_administrator_sees_and_changes_everything(secure):
    admin = Browser(secure)
    assert admin.log_in("admin")[0] == 200
    assert [admin(page)[0] for page in PAGES] == [200] * len(PAGES)
    assert {"principal": "User:alice", "operation": "READ"}.items() <= admin("acls")[1][0].items()
    assert admin("create_topic", {"name": "made", "partitions": 2})[0] == 200
    assert len(admin("topic?name=made")[1]["partitions"]) == 2
    assert admin("delete_topic", {"name": "made"})[0] == 200


def test_a_user_who_was_deleted_is_logged_out(secure):
    browser = Browser(secure)
    assert browser.log_in("gone")[0] == 200
    request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("gone", 2)])
    assert secure.admin.call(request, 0).results[0].error_code == 0
    secure.advance_ms(1_000)
    secure.wait_until(lambda: browser("topics")[0] == 401)
    assert browser("topics")[0] == 401


def connections_made(running):
    families = running.server.services.metrics.collect(lambda name: name.endswith("connection-creation-total"))
    return sum(sample.value for family in families for sample in family.samples)


def test_the_listener_is_asked_for_its_mechanisms_once(secure):
    Browser(secure)("session")
    before = connections_made(secure)
    for _ in range(3):
        Browser(secure)("session")
    assert connections_made(secure) == before


def test_failed_logins_of_one_user_do_not_keep_others_out(secure):
    statuses = [Browser(secure).log_in("admin", "wrong")[0] for _ in range(25)]
    assert statuses == [401] * 20 + [429] * 5
    assert Browser(secure).log_in("alice")[0] == 200


def test_a_tenant_does_not_see_the_server(tmp_path):
    settings = [
        *CONSOLE,
        "console.listener=tenants",
        "listeners.default.bind=127.0.0.1:0",
        "listeners.tenants.bind=127.0.0.1:0",
        "listeners.tenants.authenticator=sasl",
        'listeners.tenants.sasl.mechanisms=["SCRAM-SHA-512"]',
        'listeners.tenants.sasl.credential_stores=["broker"]',
    ]
    with EmbeddedServer(settings) as running:
        Users(running.admin, tmp_path).add("alice")
        alice = Browser(running)
        assert alice.log_in("alice")[0] == 200
        assert alice("topics")[0] == 200
        assert [alice(page)[0] for page in ("server", "connections")] == [403, 403]
        assert access_of(alice, principal="User:alice", resource="TOPIC", name="orders")[0] == 403
        assert alice("close_connection", {"id": "x"})[0] == 403


def test_a_tenant_with_rights_on_the_cluster_does_not_see_the_server(tmp_path):
    files_ = CertificateFiles(str(tmp_path))
    settings = [
        *secure_settings(files_),
        *CONSOLE,
        f"console.ca_file={files_.ca}",
        'listeners.secure.filters=["topic_prefix"]',
    ]
    with EmbeddedServer(settings) as running:
        Users(running.admin, files_.ca).add("admin")
        running.acls.allow("carol", "READ", "TOPIC", "team-b.payroll")
        tenant = Browser(running)
        assert tenant.log_in("admin")[0] == 200
        assert tenant("topics")[0] == 200
        assert [tenant(page)[0] for page in ("server", "connections")] == [403, 403]
        assert access_of(tenant, principal="carol", resource="TOPIC", name="team-b.payroll")[0] == 403
        assert tenant("close_connection", {"id": "x"})[0] == 403


def test_sessions_end_when_they_are_idle_and_are_limited(monkeypatch):
    with EmbeddedServer(CONSOLE, clock=MovingClock()) as running:
        many = [Browser(running) for _ in range(5)]
        assert [each.log_in()[0] for each in many] == [200] * 5
        assert many[0]("topics")[0] == 401, "a user has four sessions"
        first, second = many[1:3]
        running.advance_ms(29 * 60_000)
        assert [first("topics")[0], second("server")[0]] == [200, 200]
        running.advance_ms(2 * 60_000)
        assert [first("topics")[0], second("topics")[0]] == [200, 401], "what the page asks for by itself is no use"
        monkeypatch.setattr(console_sessions, "MAX_SESSIONS", 1)
        monkeypatch.setattr(console_sessions, "MAX_OF_ONE_USER", 9)
        assert many[4].log_in()[0] == 503


def test_logging_out_ends_the_session(browser):
    cookie = browser.cookie
    assert browser("logout", {})[0] == 200
    browser.cookie = cookie
    assert browser("topics")[0] == 401


# ---- requests of other sites, and bad ones


def test_an_action_needs_the_secret_of_the_page(browser):
    secret, browser.csrf = browser.csrf, ""
    assert browser("create_topic", {"name": "t"})[0] == 401
    assert browser("topics")[0] == 401
    assert "csrf" not in browser("session")[1]
    browser.csrf = secret
    assert browser("topics") == (200, [])


def test_other_names_of_the_address_are_refused(browser):
    assert browser("topics", Host="evil.example:80")[0] == 421


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: {n}",
        "GET /api/none HTTP/1.1\r\nHost: localhost:1\r\nTransfer-Encoding: chunked",
        "POST /api/login HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        "POST /api/login HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: 2\r\nContent-Length: {n}",
    ],
)
def test_a_body_is_never_taken_for_a_request(browser, head):
    hidden = b"GET /api/session HTTP/1.1\r\nHost: localhost:1\r\n\r\n"
    with socket.create_connection(browser.address, 10) as sock:
        sock.sendall(head.format(n=len(hidden)).encode() + b"\r\n\r\n" + hidden)
        answers = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answers.count(b"HTTP/1.1 ") == 1


def test_an_action_needs_json_and_post(browser):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser("create_topic", {"name": "t"}, **form)[0] == 415
    assert browser.send("GET", "/api/create_topic?name=t")[0] == 404
    assert browser("topics") == (200, [])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{", 400),
        ("[]", 400),
        ("[" * 50_000, 400),
        ("x" * 70_000, 413),
        ('{"name": 7}', 400),
        ('{"name": "\\ud800"}', 400),
    ],
)
def test_bad_bodies_are_refused(browser, body, status):
    assert browser.send("POST", "/api/create_topic", body)[0] == status


def test_a_length_that_is_no_number_is_refused(browser):
    for length in ("-1", "1e3", "9" * 5_000):
        assert browser.send("POST", "/api/create_topic", "{}", **{"Content-Length": length})[0] in (400, 413)


@pytest.mark.parametrize(
    "query",
    [
        "offset=x",
        "offset=" + "9" * 400,
        "partition=-1",
        "partition=99",
        "partition=2147483648",
        "timestamp_ms=9999999999999999999",
        "limit=",
        "",
    ],
)
def test_bad_queries_are_refused(browser, server, query):
    server.create_topic("t")
    assert browser(f"records?name=t&{query}")[0] in ((200,) if query in ("", "limit=") else (400, 409))
    assert browser("records")[0] == 400
    assert browser("topic?name=none")[0] == 409
    assert browser.send("GET", "//[/api")[0] in (400, 404)


def test_every_answer_forbids_frames_and_foreign_scripts(browser):
    for path in ("/", "/console.js", "/console.css", "/api/topics", "/nothing"):
        browser.send("GET", path)
        policy = browser.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert browser.headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_sets_texts_and_no_html():
    script = (files("klamm_console") / "page" / "console.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc", script)
    page = (files("klamm_console") / "page" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|\son[a-z]+=|style=", page)


# ---- the description of the API


def test_the_description_has_every_request_and_what_it_needs(server):
    visitor = Browser(server)
    status, document = visitor("openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
    (extension,) = server.server.extensions
    routes = extension.api.routes
    assert {f"/api/{name}" for _, name in routes} == set(document["paths"])
    for (method, name), route in routes.items():
        described = document["paths"][f"/api/{name}"]
        assert list(described) == [method.lower()]
        body = None if method == "GET" else {}
        is_open = described[method.lower()].get("security") == []
        assert (visitor(name, body)[0] == 401) is (not is_open), name
        assert is_open is route.is_open


def test_answers_are_as_the_description_says(browser, server):
    server.create_topic("t")
    values = {"name": "t", "principal": "User:alice", "resource": "TOPIC", "partition": 0, "limit": 1}
    for path, methods in browser("openapi.json")[1]["paths"].items():
        described = methods.get("get")
        if described is None:
            continue
        parameters = {each["name"]: each for each in described.get("parameters", ())}
        needed = {name: values[name] for name, each in parameters.items() if each["required"]}
        status, answer = browser(f"{path.removeprefix('/api/')}?{urllib.parse.urlencode(needed)}")
        assert status == 200, path
        kind = described["responses"]["200"]["content"]["application/json"]["schema"]["type"]
        assert isinstance(answer, {"array": list, "object": dict}[kind]), path
        for name in needed:
            fewer = {key: value for key, value in needed.items() if key != name}
            assert browser(f"{path.removeprefix('/api/')}?{urllib.parse.urlencode(fewer)}")[0] == 400, (path, name)


def test_actions_refuse_a_body_without_what_they_need(browser):
    for path, methods in browser("openapi.json")[1]["paths"].items():
        schema = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if schema and schema["schema"]["required"]:
            assert browser(path.removeprefix("/api/"), {})[0] == 400, path


# ---- what it shows


def test_records_are_shown_by_offset_time_and_from_the_end(browser, server):
    server.create_topic("t")
    for number in range(100):
        server.produce("t", f'{{"number": {number}}}', key=f"k{number}", timestamp_ms=1_000 + number)
    shown = browser("records?name=t")[1]
    assert [shown["records"][0]["offset"], shown["next_offset"], shown["end_offset"]] == [50, 100, 100]
    assert shown["records"][0]["value"] == {"bytes": 14, "cut": False, "as": "text", "text": '{"number": 50}'}
    assert [each["offset"] for each in browser("records?name=t&offset=7&limit=2")[1]["records"]] == [7, 8]
    assert browser("records?name=t&timestamp_ms=1042")[1]["records"][0]["offset"] == 42
    assert browser("records?name=t&offset=200")[1]["records"] == []


def test_any_bytes_can_be_shown(browser, server):
    server.create_topic("t")
    values = [
        b"\xff\0",
        None,
        b"",
        HOSTILE,
        "x" * 100_000,
        "\u00e9" * 50_000,
        b"\0\0\0\0\x07abc",
        "[" * 20_000,
        "[NaN, 12345678901234567890]",
        b"\xff\0\1" * 9_000,
    ]
    server.produce("t", *values, key=HOSTILE, headers=[(HOSTILE, None)])
    shown = [each["value"] for each in browser("records?name=t")[1]["records"]]
    assert shown[0] == {"bytes": 2, "cut": False, "as": "hex", "text": "ff 00"}
    assert shown[1] is None
    assert shown[3]["text"] == HOSTILE
    assert (shown[4]["cut"], len(shown[4]["text"])) == (True, 16 * 1024)
    assert shown[5]["as"] == "text"
    assert shown[6]["schema_id"] == 7
    assert [shown[7]["as"], shown[8]["text"]] == ["text", "[NaN, 12345678901234567890]"]
    assert shown[9]["as"] == "hex"


def register(server, subject, schema, kind="AVRO"):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.schema_registry_url).netloc, timeout=30)
    body = json.dumps({"schema": json.dumps(schema), "schemaType": kind})
    connection.request("POST", f"/subjects/{subject}/versions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, content
    return content["id"]


def written(number, data):
    return b"\0" + number.to_bytes(4, "big") + data


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "price", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "next", "type": ["null", "Order"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    ],
}
ONE = {
    "id": -3,
    "kind": "OLD",
    "tags": ["a", "\u00e9"],
    "counts": {"x": 7},
    "price": 1.5,
    "paid": True,
    "hash": b"\1\2",
}


def avro_of(schema, value):
    fastavro = pytest.importorskip("fastavro")
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def test_records_are_decoded_by_their_schema():
    pytest.importorskip("jsonschema")
    data = avro_of(ORDER, ONE | {"next": ONE | {"next": None}})
    with EmbeddedServer(['server.extensions=["schema_registry", "console"]', CONSOLE[1]]) as server:
        order = register(server, "orders-value", ORDER)
        schema = register(server, "json-value", {"type": "object"}, "JSON")
        server.create_topic("t")
        values = [written(order, data), written(schema, b'{"a": 1}'), written(999, b"x"), written(order, data[:-1])]
        server.produce("t", *values, key=written(order, data))
        browser = Browser(server)
        browser.log_in()
        records = browser("records?name=t")[1]["records"]
    shown = ONE | {"hash": "01 02"}
    assert (records[0]["value"]["as"], records[0]["value"]["schema_id"]) == ("Avro", order)
    assert json.loads(records[0]["value"]["text"]) == shown | {"next": shown | {"next": None}}
    assert records[0]["key"]["text"] == records[0]["value"]["text"]
    assert (records[1]["value"]["as"], records[1]["value"]["text"]) == ("JSON", '{"a": 1}')
    assert records[2]["value"]["note"] == "the registry answers 404 to the question for the schema 999"
    assert (records[2]["value"]["as"], records[2]["value"]["text"]) == ("hex", "00 00 00 03 e7 78")
    assert records[3]["value"]["note"] == "the data ends too early"


def test_without_a_registry_the_page_says_so(browser, server):
    server.create_topic("t")
    server.produce("t", written(1, b"abc"))
    (record,) = browser("records?name=t")[1]["records"]
    assert "[console] schema_registry" in record["value"]["note"]
    assert (record["value"]["as"], record["value"]["text"]) == ("text", "\0\0\0\0\1abc")


LONG = "n" * 500_000
BOMBS = {
    "an array of nulls": ({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 7 + b"\x7f"),
    "a list in itself": (
        {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
        b"\2" * 50_000 + b"\0",
    ),
    "a record in itself": ({"type": "record", "name": "L", "fields": [{"name": "next", "type": "L"}]}, b""),
    "a number that does not end": ("long", b"\xff" * 100_000),
    "a size below nothing": ("string", b"\1"),
    "an index below nothing": ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\1"),
    "a long namespace": ({"type": "record", "name": "L", "namespace": "n" * 60_000, "fields": []}, b""),
    "no such branch": (["null"], b"\x7f"),
    "a type that is a number": (7, b""),
    "a type that is not known": ("Missing", b""),
    "a name that is a list": ({"type": "record", "name": "L", "fields": [{"name": [], "type": "null"}]}, b""),
}


@pytest.mark.parametrize("name", BOMBS)
def test_hostile_data_and_schemas_are_refused_in_bounds(name):
    schema, data = BOMBS[name]
    with pytest.raises(ValueError, match=r"data|schema|nested|parts|number"):
        avro.decoded(schema, avro.names_of(schema), data, avro.Steps(10_000))


def test_a_long_name_does_not_make_a_long_text(monkeypatch):
    schema = {"type": "array", "items": {"type": "enum", "name": "E", "symbols": [LONG]}}
    known = schemas.Schemas(lambda: "http://127.0.0.1:1")
    content = schemas.Schema("AVRO", json.dumps(schema))
    monkeypatch.setattr(known, "find", lambda _url, _number: content)
    many = 10_000
    data = b"\xa0\x9c\1" + bytes(many) + b"\0"
    kind, text = known.page().decoded(1, data, 1_000)
    assert kind == "Avro"
    assert len(text) < 2 * len(LONG)


def test_records_that_unpack_to_much_are_not_all_kept(browser, server):
    server.create_topic("t")
    batch = bytes(encode_batch([Record(timestamp_ms=1, value=bytes(65_000))] * 100, codec=Codec.GZIP))
    for _ in range(10):
        data = produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, batch)])
        answer = server.admin.call(produce.ProduceRequest(None, -1, 10_000, [data]), 8)
        assert answer.responses[0].partition_responses[0].error_code == 0
    records, following = server.admin.fetch("t", 0, 0, limit=10**9)
    assert sum(len(each.value) for each in records) < 20 << 20
    assert following == records[-1].offset + 1
    assert len(browser("records?name=t&offset=0&limit=7")[1]["records"]) == 7


def test_groups_are_shown_with_their_lag(browser, server):
    server.create_topic("t")
    server.produce("t", "a", "b", "c")
    assert browser("groups") == (200, [])
    partitions = [offset_commit.OffsetCommitRequestPartition(0, 1)]
    topics = [offset_commit.OffsetCommitRequestTopic("t", partitions=partitions)]
    server.admin.call(offset_commit.OffsetCommitRequest(HOSTILE, -1, "", topics=topics), 8)
    name = urllib.parse.quote(HOSTILE)
    assert [row["name"] for row in browser("groups")[1]] == [HOSTILE]
    assert browser(f"group?name={name}")[1]["offsets"] == [
        {"topic": "t", "partition": 0, "committed": 1, "end_offset": 3, "lag": 2}
    ]
    assert browser("delete_group", {"name": HOSTILE})[0] == 200


def test_a_connection_is_closed(browser, server):
    with RawClient(server.address()) as victim:
        victim.call(MetadataRequest(None), 8)
        rows = browser("connections")[1]["connections"]
        (row,) = [each for each in rows if each["client_address"].endswith(f":{victim.socket.getsockname()[1]}")]
        assert browser("close_connection", {"id": row["id"]})[0] == 200
        assert victim.at_end()


def test_leaders_on_other_nodes_are_asked():
    with EmbeddedServer(CONSOLE, nodes=3) as running:
        running.create_topic("t", 3)
        for partition in range(3):
            running.produce("t", f"of {partition}", partition=partition)
        browser = Browser(running)
        assert browser.log_in()[0] == 200
        assert {each["leader"] for each in browser("topic?name=t")[1]["partitions"]} == {1, 2, 3}
        values = [browser(f"records?name=t&partition={index}")[1]["records"][0]["value"]["text"] for index in range(3)]
        assert values == ["of 0", "of 1", "of 2"]
        assert len(browser("server")[1]["cluster"]["nodes"]) == 3
        running.nodes.stop(3)
        found = browser("topic?name=t")[1]["partitions"]
        assert [each["end_offset"] for each in found] == [1, 1, None]


def test_each_leader_is_asked_for_offsets_once():
    with EmbeddedServer(CONSOLE, nodes=2) as running:
        running.create_topic("t", 12)
        for partition in range(12):
            running.produce("t", "a", "b", partition=partition)
        partitions = [offset_commit.OffsetCommitRequestPartition(index, 1) for index in range(12)]
        topics = [offset_commit.OffsetCommitRequestTopic("t", partitions=partitions)]
        running.admin.call_group("g", offset_commit.OffsetCommitRequest("g", -1, "", topics=topics), 8)
        browser = Browser(running)
        assert browser.log_in()[0] == 200
        before = connections_made(running)
        found = browser("topic?name=t")[1]["partitions"]
        assert [(each["start_offset"], each["end_offset"]) for each in found] == [(0, 2)] * 12
        assert connections_made(running) - before <= 4, "two questions to each of two leaders"
        assert [each["lag"] for each in browser("group?name=g")[1]["offsets"]] == [1] * 12
        assert connections_made(running) - before < 12


# ---- configuration


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "example.org:80", "127.0.0.1", "192.0.2.1:1"])
def test_it_listens_on_loopback_alone(bind):
    with pytest.raises(ConfigError, match="loopback"):
        EmbeddedServer([CONSOLE[0], f"console.bind={bind}"])


def test_a_listener_that_does_not_exist_stops_the_start():
    with pytest.raises(StartError, match=r"\[console\] listener: there is no listener \"none\", only default"):
        EmbeddedServer([*CONSOLE, "console.listener=none"]).start()


def test_a_browser_shows_the_overview(server):
    (extension,) = server.server.extensions
    shown = chromium("--dump-dom", "--virtual-time-budget=8000", extension.url).decode()
    assert "Log out" in shown
    for stage in ("Accept", "Processors", "Queue", "Handlers", "Disk"):
        assert f"<b>{stage}</b>" in shown
    assert 'class="error"' not in shown


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "http://user:secret@127.0.0.1:8081", "http://127.0.0.1:8081/?a=b"])
def test_the_address_of_a_registry_has_no_user_and_no_query(url):
    with pytest.raises(ConfigError, match=r"console\.schema_registry: must be a URL without a user"):
        EmbeddedServer([*CONSOLE, f"console.schema_registry={url}"])
