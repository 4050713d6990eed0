"""Tests of the authenticator in configurations: reported problems, failed starts, reloads, and the end."""

import sys
import threading

import pytest

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginError, PluginRegistry
from klamm.config.problems import ConfigError
from klamm.sasl import ScramCredential, ScramMechanism
from klamm.server.server import StartError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from tests.sasl_client import log_in, users_setting
from tests.unit.sasl.users import credential

NOWHERE = ModuleNotFoundError("No module named 'nowhere_at_all'", name="nowhere_at_all")
"""Python 3.15 also prints the name."""
HEAD = '[listeners.public]\nbind = "127.0.0.1:0"\nauthenticator = "sasl"\n[listeners.public.sasl]\n'
PLAIN = HEAD + 'mechanisms = ["PLAIN"]\n'


def problems(tmp_path, text, files=False):
    file = tmp_path / "klamm.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_plan(file, PluginRegistry(), files=files)
    return [str(problem).replace(str(file), "FILE").replace(f"{tmp_path}/", "") for problem in error.value.problems]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD, "listeners.public.sasl.mechanisms: is required"),
        (HEAD + "mechanisms = []\n", "FILE:5:1  listeners.public.sasl.mechanisms: must name at least one mechanism"),
        (HEAD + 'mechanisms = ["PLIAN"]\n', 'unknown sasl mechanism "PLIAN"; did you mean "PLAIN"?'),
        (PLAIN + 'credential_stores = ["fiel"]\n', 'unknown credential store "fiel"; did you mean "file"?'),
        (PLAIN + 'credential_stores = ["file"]\n', "listeners.public.sasl.file.path: is required"),
        (PLAIN + "[listeners.public.sasl.PLAIN]\nx = 1\n", 'the sasl mechanism "PLAIN" has no settings'),
        (PLAIN + "worker_threads = 0\n", "must be at least 1"),
        (
            PLAIN + '[listeners.public.sasl.callable]\npassword = "no"\n',
            "FILE:6:1  listeners.public.sasl.callable: belongs to a credential store that is not listed in "
            '"credential_stores"',
        ),
        (
            PLAIN + "[listeners.public.sasl.OAUTHBEARER]\nclock_skew_seconds = 3\n",
            "FILE:6:1  listeners.public.sasl.OAUTHBEARER: belongs to a sasl mechanism that is not listed in "
            '"mechanisms"',
        ),
        (
            HEAD + 'mechanisms = ["GSSAPI"]\n[listeners.public.sasl.GSSAPI]\nprincipal_to_local_rules = ["RULE"]\n',
            'principal_to_local_rules: "RULE" is not a rule',
        ),
        (
            HEAD + 'mechanisms = ["OAUTHBEARER"]\n[listeners.public.sasl.OAUTHBEARER]\nalgorithms = ["HS256"]\n',
            '"HS256" is not an algorithm that signs with a key pair',
        ),
        (
            HEAD + 'mechanisms = ["OAUTHBEARER"]\n[listeners.public.sasl.OAUTHBEARER]\njwks_endpoint_url = "ftp://x"\n',
            "must begin with https://, http:// or file://",
        ),
    ],
)
def test_problems_are_reported_with_their_place(tmp_path, text, problem):
    assert any(problem in one for one in problems(tmp_path, text))


def test_a_common_table_may_have_parts_that_not_every_listener_names(tmp_path):
    file = tmp_path / "klamm.toml"
    file.write_text(
        '[sasl]\nmechanisms = ["PLAIN"]\n[sasl.file]\npath = "users"\n'
        '[listeners.a]\nbind = "127.0.0.1:0"\nauthenticator = "sasl"\nsasl.credential_stores = ["file"]\n'
        '[listeners.b]\nbind = "127.0.0.1:0"\nauthenticator = "sasl"\nsasl.credential_stores = ["broker"]\n'
    )
    stores = [
        [store.name for store in listener.authenticator.parts["credential_stores"]]
        for listener in load_plan(file, PluginRegistry()).listeners
        if listener.authenticator is not None
    ]
    assert stores == [["file"], ["broker"]]


EXPECTED = 'expected_audience = ["a"]\nexpected_issuer = "i"\n'
TOKENS = HEAD + 'mechanisms = ["OAUTHBEARER"]\n[listeners.public.sasl.OAUTHBEARER]\n'
CALLABLE = PLAIN + 'credential_stores = ["callable"]\n[listeners.public.sasl.callable]\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            PLAIN + 'credential_stores = ["file"]\n[listeners.public.sasl.file]\npath = "absent"\n',
            "FILE:8:1  listeners.public.sasl.file.path: absent: No such file or directory",
        ),
        (
            PLAIN + 'credential_stores = ["file"]\n[listeners.public.sasl.file]\npath = "garbage"\n',
            "FILE:8:1  listeners.public.sasl.file.path: garbage: line 1: is not USER:VERIFIER",
        ),
        (CALLABLE, "FILE:7:1  listeners.public.sasl.callable: password or verifier must be set"),
        (
            CALLABLE + 'verifier = "nowhere_at_all:x"\n',
            f'FILE:8:1  listeners.public.sasl.callable.verifier: "nowhere_at_all:x" cannot be imported: {NOWHERE!r}',
        ),
        (
            CALLABLE + 'password = "os:sep"\n',
            'FILE:8:1  listeners.public.sasl.callable.password: "os:sep" cannot be imported:'
            " TypeError('os:sep is a str, which cannot be called')",
        ),
        (
            TOKENS + 'jwks_endpoint_url = "https://x"\nexpected_issuer = "i"\n',
            "FILE:6:1  listeners.public.sasl.OAUTHBEARER.expected_audience: must be set, or allow_unverified_audience"
            " = true: tokens for any service are then accepted",
        ),
        (
            TOKENS + 'jwks_endpoint_url = "https://x"\nexpected_audience = ["a"]\n',
            "FILE:6:1  listeners.public.sasl.OAUTHBEARER.expected_issuer: must be set, or allow_unverified_issuer"
            " = true: tokens of any issuer are then accepted",
        ),
        (
            TOKENS + 'jwks_endpoint_url = "https://x"\nallow_unverified_isuer = true\nexpected_audience = ["a"]\n',
            "FILE:8:1  listeners.public.sasl.OAUTHBEARER.allow_unverified_isuer: unknown key"
            '; did you mean "allow_unverified_issuer"?',
        ),
        (TOKENS, "FILE:6:1  listeners.public.sasl.OAUTHBEARER: jwks_endpoint_url or jwks_file must be set"),
        (
            TOKENS + 'jwks_file = "garbage"\njwks_endpoint_url = "https://x"\n' + EXPECTED,
            "FILE:7:1  listeners.public.sasl.OAUTHBEARER.jwks_file: jwks_endpoint_url is set as well",
        ),
        (
            TOKENS + 'jwks_file = "garbage"\n' + EXPECTED,
            "FILE:7:1  listeners.public.sasl.OAUTHBEARER.jwks_file: garbage: is not a JWK set:"
            " Expecting value: line 1 column 1 (char 0)",
        ),
        (
            TOKENS + 'jwks_endpoint_url = "https://x"\njwks_ca_file = "garbage"\n' + EXPECTED,
            "FILE:8:1  listeners.public.sasl.OAUTHBEARER.jwks_ca_file: garbage: it contains no PEM certificate",
        ),
        (
            TOKENS + 'jwks_endpoint_url = "https://x"\njwks_ca_file = "absent"\n' + EXPECTED,
            "FILE:8:1  listeners.public.sasl.OAUTHBEARER.jwks_ca_file: absent: No such file or directory",
        ),
        (
            HEAD + 'mechanisms = ["GSSAPI"]\n[listeners.public.sasl.GSSAPI]\nkeytab = "absent"\n',
            "FILE:7:1  listeners.public.sasl.GSSAPI.keytab: absent: No such file or directory",
        ),
        (
            HEAD + 'mechanisms = ["GSSAPI"]\n[listeners.public.sasl.GSSAPI]\nkeytab = "garbage"\n',
            "FILE:7:1  listeners.public.sasl.GSSAPI.keytab: garbage: is not a keytab",
        ),
        (
            PLAIN + 'mechanism_connections_max_reauth_ms = { "SCRAM-SHA-256" = 5 }\n',
            'FILE:6:1  listeners.public.sasl.mechanism_connections_max_reauth_ms: names "SCRAM-SHA-256",'
            " which is not among mechanisms",
        ),
    ],
)
def test_unusable_settings_are_reported_before_a_start_with_their_place(tmp_path, text, problem):
    (tmp_path / "garbage").write_text("garbage\n")
    assert problem in problems(tmp_path, text, files=True)


def test_a_password_in_a_configuration_is_refused_and_not_repeated(tmp_path):
    (problem,) = problems(tmp_path, PLAIN + '[listeners.public.sasl.users]\nalice = "my secret"\n')
    assert 'the verifier of user "alice" is not a SCRAM verifier' in problem
    assert "my secret" not in problem
    weak = credential("x").to_text().replace("$4096:", "$1000:")
    (problem,) = problems(tmp_path, PLAIN + f'[listeners.public.sasl.users]\nalice = "{weak}"\n')
    assert "has 1000 iterations; at least 4096" in problem


def embedded(*settings):
    return EmbeddedServer(
        ["listeners.default.authenticator=sasl", "listeners.default.api_set=echo"]
        + [f"listeners.default.sasl.{setting}" for setting in settings]
    )


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            ['mechanisms=["PLAIN"]', 'mechanism_connections_max_reauth_ms={"SCRAM-SHA-256" = 5}'],
            'names "SCRAM-SHA-256", which is not among mechanisms',
        ),
        (['mechanisms=["OAUTHBEARER"]'], "SASL mechanism OAUTHBEARER: needs jwks_endpoint_url or jwks_file"),
        (['mechanisms=["PLAIN"]', 'credential_stores=["file"]', "file.path=/nowhere/users"], "No such file"),
        (['mechanisms=["PLAIN"]', 'credential_stores=["callable"]'], "needs password or verifier"),
        (
            ['mechanisms=["PLAIN"]', 'credential_stores=["callable"]', "callable.password=nowhere_at_all:x"],
            "No module named 'nowhere_at_all'",
        ),
    ],
)
def test_a_mechanism_that_cannot_open_stops_the_start_and_leaves_no_thread(settings, complaint):
    before = threading.active_count()
    with pytest.raises(StartError, match=complaint):
        embedded(*settings).start()
    assert threading.active_count() == before


def test_gssapi_reports_missing_settings(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.delitem(sys.modules, "klamm_sasl.gssapi_mechanism", raising=False)
    with pytest.raises((PluginError, StartError), match=r"needs klamm\[gssapi\]"):
        embedded('mechanisms=["GSSAPI"]').start()


def test_a_reload_reads_users_again_and_reports_invalid_ones(tmp_path):
    file = tmp_path / "users"
    file.write_text(f"alice:{credential('one').to_text()}\n")
    with embedded(
        'mechanisms=["PLAIN"]', 'credential_stores=["file"]', f"file.path={file}", "file.refresh_ms=3600000"
    ) as server:

        def enters(password):
            with RawClient(server.address()) as client:
                return log_in(client, "PLAIN", "alice", password).error_code == 0

        assert enters("one")
        file.write_text(f"alice:{credential('two').to_text()}\n")
        (listener,) = server.server.listeners
        assert listener.reload() == []
        assert enters("two")
        assert not enters("one")
        file.write_text("garbage")
        (problem,) = listener.reload()
        assert "line 1: is not USER:VERIFIER" in problem
        assert enters("two")


def test_closing_the_authenticator_ends_its_threads():
    before = threading.active_count()
    with embedded('mechanisms=["PLAIN"]', "worker_threads=3", users_setting(alice="x").removeprefix("sasl.")):
        assert threading.active_count() >= before + 3
    assert threading.active_count() == before


def test_a_listener_of_any_handler_set_lists_the_apis_of_sasl():
    with embedded('mechanisms=["PLAIN"]') as server, RawClient(server.address()) as client:
        listed = {each.api_key for each in client.call(ApiVersionsRequest("x", "1"), 3).api_keys}
    assert {17, 18, 36} <= listed


@pytest.mark.parametrize("text", ["", "SCRAM-SHA-256$4096:AA==$AA==:AA==", "SCRAM-SHA-1$4096:AA==$AA==:AA==", "plain"])
def test_text_that_is_not_a_verifier_is_refused(text):
    with pytest.raises(ValueError, match=r"SCRAM|keys"):
        ScramCredential.from_text(text)


def test_verifiers_are_read_back_from_text_and_rows():
    for mechanism in ScramMechanism:
        one = credential("x", mechanism)
        assert ScramCredential.from_text(one.to_text()) == ScramCredential.from_row(one.to_row()) == one
        assert "stored_key" not in repr(one)
        assert ScramMechanism.of_row_key(mechanism.row_key("a:b")) == (mechanism, "a:b")
