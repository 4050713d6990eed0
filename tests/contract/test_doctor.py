"""Tests of `klamm doctor`: its report about listeners, and about a gateway's nodes."""

import errno
import os
import re
import socket
from pathlib import Path

import pytest

from klamm import ApiSet, Provider, hookimpl
from klamm.cli.doctor import folder_problem, run
from klamm.cli.main import main, parser
from klamm.config import Finding
from klamm.config.plugin_registry import PluginRegistry
from klamm.testing import EmbeddedServer, SecureServer
from tests.contract.gateway_nodes import FakeNode, free_ports


@pytest.fixture
def doctor(tmp_path, capsys):
    """Return `doctor(text)`, which returns the exit code and the printed lines."""

    def call(text):
        file = tmp_path / "klamm.toml"
        file.write_text(text)
        code = main(["doctor", str(file)])
        captured = capsys.readouterr()
        assert captured.err == ""
        return code, captured.out.splitlines()

    return call


def test_the_report_continues_after_a_folder_that_cannot_be_entered(monkeypatch, tmp_path):
    closed, stat = tmp_path / "closed", os.stat
    closed.mkdir()

    def refused(path, **options):
        if closed in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refused)
    assert folder_problem(closed / "klamm" / "data") == ""


def test_a_folder_in_which_nothing_can_be_made_is_reported(monkeypatch, tmp_path, doctor):
    def full(path, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(os, "mkdir", full)
    code, lines = doctor(f'[server]\ndata_dir = "{tmp_path}/data"\n[listeners.a]\nbind = "127.0.0.1:0"\n')
    assert code == 1
    assert f"nothing can be made in {tmp_path}: No space left on device" in one(lines, "server.data_dir")


def test_the_report_names_risks_of_the_configuration(doctor):
    code, lines = doctor('[listeners.a]\nbind = "0.0.0.0:0"\nadvertise = "127.0.0.1:9092"\n')
    assert (code, lines[0][:7]) == (0, "risk   ")
    assert "there is no authorizer" in lines[0]


def front(bootstrap, *lines, ports="19093-19094", upstream=()):
    """Return a file with one listener before a cluster."""
    return "\n".join(
        [
            "[listeners.front]",
            'bind = "127.0.0.1:19092"',
            'api_set = "gateway"',
            "[gateway]",
            f"bootstrap = {bootstrap}".replace("'", '"'),
            f'node_ports = "{ports}"',
            "first_node_id = 1",
            "socket_connection_setup_timeout_ms = 2000",
            *lines,
            "[gateway.upstream]",
            *upstream,
        ]
    )


def one(lines, subject):
    """Return the only line about a subject."""
    (line,) = [line for line in lines if line[7:].startswith(f"{subject}: ")]
    return line


def test_the_report_of_a_working_configuration(doctor):
    with FakeNode(node_id=1) as first, FakeNode(node_id=2) as second:
        first.brokers = second.brokers = {1: first.port, 2: second.port}
        code, lines = doctor(front([first.bootstrap]))
    assert code == 0, lines
    assert one(lines, "listener front") == (
        "ok     listener front: binds 127.0.0.1:19092, clients are sent to 127.0.0.1:19092 and use PLAINTEXT"
    )
    assert one(lines, f"bootstrap {first.bootstrap}").endswith(": answers by PLAINTEXT; 91 APIs")
    assert one(lines, f"node 2 (127.0.0.1:{second.port})").startswith("ok ")
    assert one(lines, "listener front, node 2") == "ok     listener front, node 2: clients are sent to 127.0.0.1:19094"


def test_addresses_that_do_not_answer_and_nodes_without_a_port_are_reported(doctor):
    nowhere = free_ports(1)
    with FakeNode(node_id=1) as node:
        node.brokers = {1: node.port, 2: nowhere, 9: node.port}
        code, lines = doctor(front([f"127.0.0.1:{nowhere}", "no-such-host.invalid:9092", node.bootstrap]))
    assert code == 1
    assert re.match(
        r"wrong .*connection_failed: Connection refused; start the node", one(lines, f"bootstrap 127.0.0.1:{nowhere}")
    )
    assert re.match(r"wrong .*unknown_host: [^\[]*; add the name", one(lines, "bootstrap no-such-host.invalid:9092"))
    assert one(lines, f"bootstrap {node.bootstrap}").startswith("ok ")
    assert one(lines, f"node 2 (127.0.0.1:{nowhere})").startswith("wrong")
    assert one(lines, "listener front, node 9") == (
        "wrong  listener front, node 9: has no port: node_ports 19093-19094 serve nodes 1 to 2; set first_node_id to"
        " the smallest node id, and make node_ports reach to the largest"
    )


def test_the_report_says_that_nodes_are_unknown_if_none_answers(doctor):
    nowhere = free_ports(1)
    code, lines = doctor(front([f"127.0.0.1:{nowhere}"]))
    assert (code, lines[-1]) == (1, "wrong  nodes: are not known; at least one address of bootstrap must answer")


def test_a_silent_node_is_reported(doctor):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        text = front([f"127.0.0.1:{port}"]).replace("= 2000", "= 100")
        code, lines = doctor(text)
    assert code == 1
    assert "timeout: " in one(lines, f"bootstrap 127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (None, None),
        ("password", "authentication_failed: the node refuses the login"),
        ("authority", "tls_failed: "),
        ("protocol", "(closed_by_node|connection_lost|invalid_response|connection_failed|timeout): "),
    ],
)
def test_the_doctor_tries_tls_and_the_login(doctor, tmp_path, tls_files, wrong, reason):
    (tmp_path / "password").write_text("guess" if wrong == "password" else "secret")
    with SecureServer() as node:
        upstream = [
            f'security_protocol = "{"SASL_PLAINTEXT" if wrong == "protocol" else "SASL_SSL"}"',
            'sasl_username = "admin"',
            f'sasl_password_file = "{tmp_path / "password"}"',
            f'ssl_truststore_location = "{tls_files.ca if wrong == "authority" else node.ca_file}"',
        ]
        code, lines = doctor(front([node.bootstrap], upstream=upstream))
        line = one(lines, f"bootstrap {node.bootstrap}")
    if wrong is None:
        assert line.startswith("ok ")
        assert "answers by SASL_SSL SCRAM-SHA-512, logged in as admin" in line
    else:
        assert code == 1
        assert re.search(rf": {reason}.*; (compare|check|start) ", line), line


def test_unknown_host_names_and_ports_that_occur_twice_are_reported(doctor):
    with FakeNode(node_id=1) as node:
        text = front([node.bootstrap]) + "\n".join(
            [
                "",
                "[listeners.other]",
                'bind = "127.0.0.1:19094"',
                'advertise = "no-such-host.invalid:19094"',
                'api_set = "echo"',
            ]
        )
        code, lines = doctor(text)
    assert code == 1
    sent, meets = [line for line in lines if line[7:].startswith("listener other: ")]
    assert "no-such-host.invalid does not resolve" in sent
    assert sent.endswith("or set listeners.other.advertise")
    assert "listener front has port 19094 too; give each listener" in meets


class Sick(ApiSet):
    """A handler set that fails when it is examined."""

    def examine(self, listeners):
        assert [one.security_protocol for one in listeners] == ["PLAINTEXT"]
        yield Finding("its pulse", "is fine")
        raise ZeroDivisionError("on purpose")


class Hospital:
    """A plugin with this handler set."""

    @hookimpl
    def klamm_api_sets(self):
        yield Provider("sick", f"{__name__}:Sick")


def test_a_handler_set_that_fails_is_reported(capsys):
    registry = PluginRegistry()
    registry.add(Hospital(), "hospital")
    options = parser().parse_args(["doctor", "--bind", "127.0.0.1:19092", "--set", "listeners.default.api_set=sick"])
    assert run(options, registry) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "ok     its pulse: is fine" in lines
    cause = rf"ZeroDivisionError\('on purpose'\) at {re.escape(__file__)}:\d+"
    assert re.fullmatch(rf"wrong  \[sick\]: cannot be examined: {cause}; hospital has to be fixed", lines[-1])


def test_a_wrong_file_is_reported_as_by_check(tmp_path, capsys):
    file = tmp_path / "klamm.toml"
    file.write_text('[listeners.front]\napi_set = "gateway.est"\n[gateway.east]\nbootstrap = ["b:1"]\n')
    assert main(["doctor", str(file)]) == 2
    assert (
        "klamm.toml:2:1  listeners.front.api_set: there is no table [gateway.est]; did you mean"
        in capsys.readouterr().err
    )


def test_a_wildcard_host_requires_an_advertised_address(doctor):
    port = free_ports(1)
    text = f'[listeners.a]\nbind = "0.0.0.0:{port}"\napi_set = "echo"\n'
    code, lines = doctor(text)
    assert code == 1
    assert "set listeners.a.advertise" in one(lines, "listener a")
    code, lines = doctor(text + f'advertise = "localhost:{port}"\n')
    assert one(lines, "listener a").startswith("ok ")


def test_a_port_that_is_taken_is_reported(doctor):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = doctor(f'[listeners.a]\nbind = "127.0.0.1:{port}"\napi_set = "echo"\n')
    assert code == 1
    assert any(
        f"cannot bind 127.0.0.1:{port} now: Address already in use; stop what listens there, unless" in each
        for each in lines
    )


def test_the_port_of_a_running_server_is_reported(doctor):
    with EmbeddedServer(["listeners.default.api_set=echo"]) as server:
        host, port = server.address()
        code, lines = doctor(f'[listeners.a]\nbind = "{host}:{port}"\napi_set = "echo"\n')
    assert (code, lines[-1]) == (
        1,
        f"wrong  listener a: {host}:{port} is in use: a Kafka server listens there; stop it, unless it is this server",
    )


def test_the_port_of_a_running_server_with_tls_is_reported(doctor):
    with SecureServer() as server:
        code, lines = doctor(f'[listeners.a]\nbind = "{server.bootstrap}"\napi_set = "echo"\n')
    assert code == 1
    assert "is in use: a Kafka server listens there" in lines[-1]


def test_folders_that_cannot_be_made_are_reported(doctor, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    server = '[server]\ndata_dir = "file/data"\nlog_file = "logs/klamm.log"\n'
    text = f'{server}[listeners.a]\nbind = "127.0.0.1:0"\napi_set = "echo"\n'
    code, lines = doctor(text)
    assert code == 1
    assert one(lines, "server.data_dir").startswith(f"wrong  server.data_dir: {tmp_path / 'file'} is not a directory; ")
    assert one(lines, "server.log_file") == f"ok     server.log_file: {tmp_path / 'logs'} can be used"
    assert main(["check", "--strict", str(tmp_path / "klamm.toml")]) == 1
    assert capsys.readouterr().err == f"warning: server.data_dir: {tmp_path / 'file'} is not a directory\n"
