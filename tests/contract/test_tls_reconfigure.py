"""Tests of a reload that changes settings of the transport `ssl`: which apply together, and what a failure leaves."""

import json
import ssl

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.api_sets import Plugin
from tests.tls_files import TlsFiles, revocation_list


@pytest.fixture
def files(tmp_path):
    return TlsFiles(tmp_path / "tls")


def made(settings):
    return EmbeddedServer(["listeners.default.api_set=trying", *settings], plugins=[Plugin()])


def settings_of(files, **more):
    """Return the settings of a server that trusts the authority of these files, and checks its revocation list."""
    crl = files.directory / "crl.pem"
    if not crl.exists():
        crl.write_bytes(revocation_list(files.authority, [], now=files.now))
    return files.server_settings(client_auth="required", revocation_lists=json.dumps([str(crl)]), **more)


def as_text(settings):
    """Return the settings with the content of files in place of their paths."""
    keys = {"certificate": "certificate_pem", "private_key": "private_key_pem", "trust_store": "trust_store_pem"}
    found = []
    for setting in settings:
        name, _, value = setting.partition("=")
        below, _, key = name.rpartition(".")
        if key in keys:
            with open(value, encoding="utf-8") as file:
                setting = f"{below}.{keys[key]}={json.dumps(file.read())}"
        found.append(setting)
    return found


def answers(server, files):
    with RawClient(server.address(), ssl_context=files.client_context(files.client)) as client:
        return bool(client.call(MetadataRequest(topics=None), 12).brokers)


def metric(server, name):
    families = server.server.services.metrics.collect(lambda one: one == f"klamm:type=SslTransport,name={name}")
    return sum(sample.value for family in families for sample in family.samples)


@pytest.mark.parametrize("change", [list, as_text])
def test_a_reload_applies_all_settings_of_another_authority_together(files, tmp_path, change):
    other = TlsFiles(tmp_path / "other", "another CA")
    with made(settings_of(files)) as server:
        assert answers(server, files)
        wanted = made(change(settings_of(other))).plan
        assert server.server.reconfigure(wanted)[1] == []
        assert answers(server, other)


def test_a_reload_restricts_the_versions_of_tls(files):
    with made(settings_of(files)) as server:
        wanted = made(settings_of(files, min_version="TLSv1.3", reload_interval_ms=7)).plan
        assert server.server.reconfigure(wanted) == (["[listeners.default.ssl] min_version"], [])
        with pytest.raises((ssl.SSLError, ConnectionError)):
            RawClient(server.address(), ssl_context=files.client_context(files.client, version=ssl.TLSVersion.TLSv1_2))


def test_a_failed_change_leaves_the_settings_and_loads_nothing_again(files):
    odd = files.issue("odd", "CN=odd")
    with made(settings_of(files)) as server:
        wanted = made(settings_of(files, certificate=odd.certificate, private_key=odd.key)).plan
        odd.key.write_bytes(files.client.key.read_bytes())
        taken, (problem,) = server.server.reconfigure(wanted)
        assert taken == []
        assert problem.startswith("[listeners.default.ssl] stays as it was: ")
        assert server.server.reload() == []
        assert metric(server, "Reloads") == 0
        assert answers(server, files)
