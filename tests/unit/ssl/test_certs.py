"""Tests of `klamm certs`: its files and printed settings work, and it does not damage existing files."""

import errno
import io
import os
import re
import ssl

import pytest

from klamm.server.server import StartError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm_ssl.certs import run


@pytest.fixture
def certs(tmp_path, capsys):
    """Return `certs("--client", "x")`, which returns (exit code, stdout, stderr).

    The directory comes before the arguments.
    """

    def call(*arguments):
        code = run([str(tmp_path / "certs"), *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def listener_of(printed):
    return re.search(r"^--- klamm\n(.*?)^---", printed, re.MULTILINE | re.DOTALL).group(1)


def test_the_printed_settings_serve_and_the_written_certificates_are_accepted(certs, tmp_path):
    code, printed, _ = certs("--client", "alice", "--port", "0")
    assert code == 0
    file = tmp_path / "klamm.toml"
    file.write_text(listener_of(printed).replace('transport = "ssl"', 'transport = "ssl"\napi_set = "echo"'))
    context = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.pem"))
    context.load_cert_chain(tmp_path / "certs" / "alice.pem")
    with EmbeddedServer(file=file) as server:
        host, port = server.address("tls")
        with RawClient((host, port), ssl_context=context, server_hostname="127.0.0.1") as client:
            assert client.call(ApiVersionsRequest("a", "1"), 3).error_code == 0


@pytest.mark.parametrize(
    ("host", "advertised", "bind"),
    [
        ("kafka.invalid", "kafka.invalid", "0.0.0.0"),
        ("192.0.2.7", "192.0.2.7", "0.0.0.0"),
        ("2001:db8::7", "[2001:db8::7]", "[::]"),
    ],
)
def test_a_listener_for_other_machines_binds_all_addresses(certs, host, advertised, bind):
    _, printed, _ = certs("--host", host, "--host", "localhost")
    assert listener_of(printed).startswith(f'[listeners.tls]\nbind = "{bind}:9093"\nadvertise = "{advertised}:9093"\n')


def test_keys_are_for_their_owner_only(certs, tmp_path):
    certs()
    directory = tmp_path / "certs"
    secret = {path.name for path in directory.iterdir() if b"PRIVATE KEY" in path.read_bytes()}
    assert secret == {"ca.key", "server.pem", "client.pem"}
    assert all((directory / name).stat().st_mode & 0o077 == 0 for name in secret)


def test_existing_files_stay_unless_an_option_replaces_them(certs, tmp_path):
    certs("--client", "alice")
    directory = tmp_path / "certs"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    code, printed, _ = certs("--client", "bob")
    assert code == 0
    assert "(exists" in printed
    assert {name: (directory / name).read_bytes() for name in before} == before
    certs("--client", "alice", "--force")
    changed = {name for name in before if (directory / name).read_bytes() != before[name]}
    assert changed == {"server.pem", "alice.pem"}


@pytest.mark.parametrize("name", ["ca", "server", "a/b", "", "a,O=b"])
def test_dangerous_names_are_refused(certs, tmp_path, name):
    code, _, complaint = certs("--client", name)
    assert code == 2
    assert complaint.startswith("klamm certs: ")
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--days", "0"), "--days must be at least 1, not 0"),
        (("--host", ""), "'' cannot be a name: it must have 1 to 64 characters"),
        (("--client", "a" * 65), f"{'a' * 65!r} cannot be a name: it must have 1 to 64 characters"),
    ],
)
def test_impossible_names_are_refused_before_a_file_is_written(certs, tmp_path, arguments, complaint):
    assert certs(*arguments) == (2, "", f"klamm certs: {complaint}\n")
    assert not (tmp_path / "certs").exists()


def test_a_directory_that_cannot_be_created_is_named(certs, tmp_path):
    (tmp_path / "certs").write_text("a file")
    assert certs() == (2, "", f"klamm certs: {tmp_path / 'certs'}: File exists\n")


def test_an_unreadable_authority_is_reported(certs, tmp_path):
    certs()
    (tmp_path / "certs" / "ca.key").write_text("garbage")
    code, _, complaint = certs("--client", "new")
    assert code == 2
    assert complaint.startswith("klamm certs: ")


def test_a_listener_without_certificates_does_not_start():
    server = EmbeddedServer(["listeners.default.transport=ssl", "listeners.default.api_set=echo"])
    with pytest.raises(StartError, match="one of certificate, certificate_pem and keystore must be set"):
        server.start()


def test_an_invalid_host_is_refused(certs, tmp_path):
    code, _, complaint = certs("--host", "a b")
    assert (code, complaint[:18]) == (2, "klamm certs: 'a b'")
    assert not (tmp_path / "certs").exists()


def test_an_existing_certificate_without_a_host_is_reported(certs):
    certs("--host", "one.example", "--host", "10.0.0.1")
    code, printed, _ = certs("--host", "one.example", "--host", "10.0.0.1", "--host", "two.example")
    assert code == 0
    assert re.findall(r"it does not name (\S+)", printed) == ["two.example"]


class FullDisk(io.FileIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_damages_no_file_and_the_command_can_be_repeated(certs, tmp_path, monkeypatch):
    directory = tmp_path / "certs"

    def on_a_full_disk(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdopen", lambda descriptor, mode: FullDisk(descriptor, mode))
            return certs(*arguments)

    assert on_a_full_disk() == (2, "", f"klamm certs: {directory}: No space left on device\n")
    assert certs()[0] == 0
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert on_a_full_disk("--force")[0] == 2
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
