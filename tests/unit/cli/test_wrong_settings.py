"""Tests of `klamm check` with each invalid setting: it reports file, line, key and problem, without a traceback."""

import re
import socket

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from klamm.cli.main import main
from tests.unit.cli import wrong_settings

# TOML and the messages about it are the same on every Python, and in compiled builds.
pytestmark = pytest.mark.once
TABLES = [pytest.param(table, id=table.name) for table in wrong_settings.tables()]
LINE = re.compile(r"(?P<file>[^:]*):(?P<line>\d+):(?P<column>\d+)  (?P<key>[^:]+): (?P<message>.+)")
WORDS_OF_PYTHON = re.compile(
    r"Traceback|Errno|\w+(Error|Exception)\(|codec|NoneType|\bNone\b|\bTrue\b|\bFalse\b"
    r"|<class|object at 0x|\\x|b'|dict|tuple"
)


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Return `check(text)`, which returns the exit code, and `(line, key, message)` of each problem."""
    wrong_settings.make_files(tmp_path)
    monkeypatch.chdir(tmp_path)

    def check(text):
        (tmp_path / "klamm.toml").write_text(text, encoding="utf-8")
        code = main(["check", "klamm.toml"])
        problems = []
        for line in capsys.readouterr().err.splitlines():
            assert not WORDS_OF_PYTHON.search(line), line
            if not line.startswith("warning: "):
                found = LINE.fullmatch(line)
                assert found is not None, line
                assert found["file"] == "klamm.toml"
                problems.append((int(found["line"]), found["key"], found["message"]))
        assert bool(problems) == (code == 2)
        return code, problems

    return check


def lines_of(text):
    """Return the keys of the table at the end of a text, by their line numbers."""
    lines = list(enumerate(text.splitlines(), 1))
    return {number: line.partition('" = ')[0][1:] for number, line in lines if line.startswith('"')}


@pytest.mark.parametrize("table", TABLES)
def test_each_invalid_value_is_named_with_its_line(check, table):
    by_way = {}
    for key, spec in table.specs.items():
        for way, value in wrong_settings.ruled_out(spec):
            by_way.setdefault(way, {})[key] = value
    assert by_way
    for way, values in by_way.items():
        text = table.text(values)
        wrong = {(number, f"{table.name}.{key}") for number, key in lines_of(text).items() if key in values}
        code, problems = check(text)
        assert code == 2
        assert wrong <= {(line, key) for line, key, _message in problems}, way


@pytest.mark.parametrize("table", TABLES)
def test_a_misspelled_key_is_named_with_a_suggestion(check, table):
    for key in table.specs:
        if len(key) > 3:
            text = table.text({key[:2] + key[3:]: 1})
            _code, problems = check(text)
            said = [message for _line, name, message in problems if name == f"{table.name}.{key[:2] + key[3:]}"]
            assert len(said) == 1, problems
            assert said[0].startswith("unknown key; did you mean "), said


@pytest.mark.parametrize("table", TABLES)
def test_the_key_of_a_value_that_a_part_refuses_is_named(check, table):
    if table.path[-1] == "GSSAPI":
        pytest.importorskip("gssapi", reason="klamm[gssapi] is not installed")
    for key, spec in table.specs.items():
        for value in wrong_settings.for_the_part_to_judge(spec):
            _code, problems = check(table.text({key: value}))
            for _line, name, _message in problems:
                assert name.startswith((table.name, "listeners.a")), (key, value, problems)


@pytest.mark.parametrize("file", wrong_settings.NO_FILES)
def test_an_invalid_schema_is_named(check, file):
    rule = f'[listeners.a.record_validation.rules.r]\ntopics = ["*"]\nvalue_schema = "{file}"\n'
    _code, problems = check(f'{wrong_settings.LISTENER}filters = ["record_validation"]\n{rule}')
    ((line, key, message),) = problems
    assert (line, key) == (6, "listeners.a.record_validation.rules.r.value_schema")
    assert message.startswith(f"{file}: ")


def test_an_extension_is_checked_even_if_the_servers_table_is_invalid(check):
    server = '[server]\nio_threads = 0\nextensions = ["prometheus", "contrl"]\n'
    _code, problems = check(f'{server}{wrong_settings.LISTENER}[prometheus]\nbind = "x"\n')
    assert [(line, key) for line, key, _message in problems] == [
        (2, "server.io_threads"),
        (7, "prometheus.bind"),
        (3, "server.extensions"),
    ]


def test_the_table_of_an_extension_below_the_server_is_shown_its_place(check):
    _code, problems = check(f'[server]\nextensions = ["control"]\ncontrol.token = "x"\n{wrong_settings.LISTENER}')
    message = "unknown key; write the settings of an extension in its own table: [control]"
    assert problems == [(3, "server.control", message)]


def test_the_table_of_a_part_below_the_server_is_shown_its_place(check):
    _code, problems = check(f'[server]\nacl.super_users = ["User:a"]\n{wrong_settings.LISTENER}')
    message = 'unknown key; it belongs below a listener: [listeners.NAME.acl], beside authorizer = "acl"'
    assert problems == [(2, "server.acl", message)]


def test_a_key_of_the_gateway_that_needs_a_password_is_refused(check, tmp_path):
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"sesame"),
    )
    (tmp_path / "encrypted").write_bytes(key)
    table = next(one for one in wrong_settings.tables() if one.path == ("gateway",))
    _code, problems = check(
        table.text({"upstream.security_protocol": "SSL", "upstream.ssl_keystore_location": "encrypted"})
    )
    assert [key for _line, key, _message in problems] == ["gateway.upstream.ssl_keystore_location"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            '[server]\nextensions = ["control"]\n[control]\nbind = "127.0.0.1:PORT"\n',
            "127.0.0.1:PORT: Address already in use",
        ),
        ('[server]\nextensions = ["control"]\n[control]\nbind = "[::1]:PORT"\n', "[::1]:PORT: Address already in use"),
        (
            '[server]\nextensions = ["prometheus"]\n[prometheus]\nbind = "[::1]:PORT"\n',
            "[::1]:PORT: Address already in use",
        ),
    ],
)
def test_a_start_says_which_file_or_address_it_cannot_use(check, tmp_path, capsys, lines, said):
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        port = str(taken.getsockname()[1])
        (tmp_path / "klamm.toml").write_text(wrong_settings.LISTENER + lines.replace("PORT", port), encoding="utf-8")
        assert main(["serve", "klamm.toml"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(said.replace("PORT", port))


@pytest.mark.parametrize(
    ("table", "key", "value", "said"),
    [
        ("gateway", "upstream.sasl_password_file", "garbage", "garbage: is not UTF-8"),
        ("gateway", "upstream.sasl_password_file", "empty", "empty: its first line, the password, is empty"),
        ("gateway", "upstream.accounts_file", "text", "text:1:4  Expected '=' after a key in a key/value pair"),
        ("gateway", "upstream.ssl_truststore_location", "text", "text: it contains no PEM certificate"),
        (
            "broker",
            "log.cleanup.policy",
            ["delte"],
            'must be compact, delete or both, not "delte"; did you mean "delete"?',
        ),
        ("server.priority", "control_apis", ["Fetsh"], 'there is no API "Fetsh"; did you mean "Fetch"?'),
        ("listeners.a.connection_quota", "overrides", {"::1": "x"}, "\"::1\": must be an integer, not 'x'"),
        ("listeners.a", "filters", ["a", 3], "item 2: must be a string, not 3"),
    ],
)
def test_the_problem_of_a_value_is_reported(check, table, key, value, said):
    found = next(one for one in wrong_settings.tables() if one.name == table)
    _code, problems = check(found.text({key: value}))
    assert [(name, message) for _line, name, message in problems] == [(f"{table}.{key}", said)]


@pytest.mark.parametrize("command", [["nodes", "FILE"], ["replay", "FILE", "--to", "127.0.0.1:1"]])
@pytest.mark.parametrize("file", wrong_settings.NO_FILES)
def test_a_command_reports_the_problems_of_its_file(check, capsys, command, file):
    assert main([file if word == "FILE" else word for word in command]) != 0
    said = capsys.readouterr().err
    assert said.startswith(f"klamm {command[0]}: {file}")
    assert not WORDS_OF_PYTHON.search(said)
