"""Tests of the console's JSON API and its page, over real listeners."""

import json
import re
import socket
import urllib.parse
from importlib.resources import files

import pytest

from klamm import __version__
from klamm.config.problems import ConfigError
from klamm.server.parts import StartError
from klamm.testing import CertificateFiles, EmbeddedServer, MovingClock, RawClient, Users
from klamm.testing.secure import secure_settings
from klamm.wire.messages import offset_commit
from klamm.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from klamm.wire.messages.metadata import MetadataRequest
from klamm_console import sessions as console_sessions
from tests.unit.console.conftest import CONSOLE, HOSTILE, PAGES, Browser, UnhurriedClock
from tests.waiting import wait_until


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


def test_a_user_logs_in_over_tls_and_scram_and_sees_only_allowed_things(secure):
    alice = Browser(secure)
    assert alice("session")[1]["mechanisms"] == ["SCRAM-SHA-512"]
    assert alice.log_in("alice", "wrong")[0] == 401
    assert alice.log_in("alice") == (200, {"user": "alice", "csrf": alice.csrf, "has_test_kit": True})
    assert [row["name"] for row in alice("topics")[1]] == ["orders"]
    status, answer = alice("records?name=payroll")
    assert (status, answer["name"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
    assert [alice(page)[0] for page in ("server", "connections", "acls", "quotas")] == [403] * 4
    assert alice.rights(principal="User:alice", resource="TOPIC", name="orders")[0] == 403
    assert alice("delete_topic", {"name": "payroll"})[0] == 403
    assert alice("close_connection", {"id": "x"})[0] == 403


def test_certificates_are_shown_with_their_expiry(secure):
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


def test_failed_logins_of_one_user_do_not_affect_others(secure):
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
        assert alice.rights(principal="User:alice", resource="TOPIC", name="orders")[0] == 403
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
        assert tenant.rights(principal="carol", resource="TOPIC", name="team-b.payroll")[0] == 403
        assert tenant("close_connection", {"id": "x"})[0] == 403


def test_sessions_end_when_they_are_idle_and_are_limited(monkeypatch):
    with EmbeddedServer(CONSOLE, clock=MovingClock()) as running:
        many = [Browser(running) for _ in range(5)]
        assert [each.log_in()[0] for each in many] == [200] * 5
        assert many[0]("topics")[0] == 401, "a user has four sessions"
        first, second = many[1:3]
        running.advance_ms(29 * 60_000)
        assert [first("topics")[0], second("server", **{"X-Klamm-Live": "1"})[0]] == [200, 200]
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


# ---- requests of other sites, and invalid ones


def test_an_action_requires_the_secret_of_the_page(browser):
    secret, browser.csrf = browser.csrf, ""
    assert browser("create_topic", {"name": "t"})[0] == 401
    assert browser("topics")[0] == 401
    assert "csrf" not in browser("session")[1]
    browser.csrf = secret
    assert browser("topics") == (200, [])


def test_other_names_of_the_address_are_refused(browser):
    assert browser("topics", Host="evil.example:80")[0] == 421
    assert browser("topics", Host="evil.example")[0] == 421
    # Browsers leave out the port of http and of https.
    assert [browser("topics", Host=host)[0] for host in ("localhost", "LOCALHOST:1", "[::1]", "[::1]:1")] == [200] * 4
    assert [browser("topics", Host=host)[0] for host in ("", ":1", "[::1", "1")] == [421] * 4


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


def test_an_action_requires_json_and_post(browser):
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
def test_invalid_bodies_are_refused(browser, body, status):
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
def test_invalid_queries_are_refused(browser, server, query):
    server.create_topic("t")
    assert browser(f"records?name=t&{query}")[0] in ((200,) if query in ("", "limit=") else (400, 409))
    assert browser("records")[0] == 400
    assert browser("topic?name=none")[0] == 409
    assert browser.send("GET", "//[/api")[0] in (400, 404)


def test_every_answer_forbids_frames_and_foreign_scripts(browser):
    pages = {f"/{each.name}" for each in (files("klamm_console") / "page").iterdir()} - {"/index.html"}
    for path in ("/", *pages, "/api/topics", "/nothing"):
        browser.send("GET", path)
        policy = browser.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert browser.headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_sets_texts_and_no_html():
    made_html = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|javascript:"
    for each in (files("klamm_console") / "page").iterdir():
        text = each.read_text(encoding="utf-8")
        assert not re.search(r"https?://|\son[a-z]+=|style=" if each.name == "index.html" else made_html, text), each


# ---- the description of the API


def test_the_description_has_every_request_and_its_rights(server):
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
    # A listener has this name too.
    server.create_topic("default")
    values = {"name": "default", "principal": "User:alice", "resource": "TOPIC", "partition": 0, "limit": 1}
    for path, methods in browser("openapi.json")[1]["paths"].items():
        described = methods.get("get")
        if described is None:
            continue
        if "application/json" not in described["responses"]["200"]["content"]:
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


def test_actions_refuse_a_body_without_required_fields(browser):
    for path, methods in browser("openapi.json")[1]["paths"].items():
        schema = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if schema and schema["schema"]["required"]:
            assert browser(path.removeprefix("/api/"), {})[0] == 400, path


# ---- the content of the page


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


def test_a_connection_is_moved():
    with EmbeddedServer([*CONSOLE, "listeners.default.processors=2"]) as running:
        browser = Browser(running)
        browser.log_in()
        with RawClient(running.address()) as client:
            client.call(MetadataRequest(None), 8)
            port = client.socket.getsockname()[1]

            def row():
                rows = browser("connections")[1]["connections"]
                return next((each for each in rows if each["client_address"].endswith(f":{port}")), None)

            before = row()
            assert browser("move_connection", {"id": before["id"], "processor": 2})[0] == 409
            for wrong in (-1, "1", None, True, 1 << 40):
                assert browser("move_connection", {"id": before["id"], "processor": wrong})[0] == 400
            other = 1 - before["processor"]
            assert browser("move_connection", {"id": before["id"], "processor": other}) == (200, {})
            wait_until(lambda: (row() or before)["processor"] == other)
            client.call(MetadataRequest(None), 8)


def test_the_parts_of_a_listener_are_shown_with_their_origin(browser):
    (listener,) = browser("server")[1]["listeners"]
    assert f"transport plaintext of klamm {__version__}" in listener["parts"]


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
        # This is the user's own connection.
        assert browser("topics")[0] == 200
        before = connections_made(running)
        found = browser("topic?name=t")[1]["partitions"]
        assert [(each["start_offset"], each["end_offset"]) for each in found] == [(0, 2)] * 12
        assert connections_made(running) - before <= 4, "two questions to each of two leaders"
        assert [each["lag"] for each in browser("group?name=g")[1]["offsets"]] == [1] * 12
        assert connections_made(running) - before < 12


# ---- configuration


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "example.org:80", "127.0.0.1", "192.0.2.1:1"])
def test_the_console_listens_only_on_loopback(bind):
    with pytest.raises(ConfigError, match="loopback"):
        EmbeddedServer([CONSOLE[0], f"console.bind={bind}"])


def test_a_listener_that_does_not_exist_stops_the_start():
    with pytest.raises(StartError, match=r"\[console\] listener: there is no listener \"none\", only default"):
        EmbeddedServer([*CONSOLE, "console.listener=none"]).start()


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "http://user:secret@127.0.0.1:8081", "http://127.0.0.1:8081/?a=b"])
def test_the_address_of_a_registry_has_no_user_and_no_query(url):
    with pytest.raises(ConfigError, match=r"console\.schema_registry: must be a URL without a user"):
        EmbeddedServer([*CONSOLE, f"console.schema_registry={url}"])


def test_a_reload_that_removes_the_listener_of_the_console_is_named(caplog):
    one = [*CONSOLE, "console.listener=other"]
    both, without = EmbeddedServer([*one, "listeners.other.bind=127.0.0.1:0"]), EmbeddedServer(one)
    with both as running:
        page = Browser(running)
        page.log_in()
        running.server.change_listeners(running.server.prepare_listeners(without.plan))
        # The login's connection to the listener may answer until it is closed.
        wait_until(lambda: page("server")[0] == 502)
        answers = [page("session"), page("server"), page("events?view=audit"), page.log_in()]
    assert {status for status, _ in answers} == {502}
    assert all('there is no listener "other"' in found["error"] for _, found in answers)
    assert "Traceback" not in caplog.text
