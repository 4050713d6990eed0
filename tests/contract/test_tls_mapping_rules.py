"""Tests of `principal_mapping_rules` that change while the server runs.

They close connections whose principal changes.
"""

import ssl

import pytest

from klamm import Provider, RequestObserver, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.api_sets import GATES, Plugin
from tests.tls_files import TlsFiles
from tests.waiting import wait_until


@pytest.fixture
def files(tmp_path):
    return TlsFiles(tmp_path / "tls")


def made(*settings):
    own = ["api_set=trying", 'gates=["fussy"]', *settings]
    lines = [text if "." in text.partition("=")[0] else f"listeners.default.{text}" for text in own]
    return EmbeddedServer(lines, plugins=[Plugin(), ClosesPlugin()])


@pytest.fixture
def serve():
    servers = []
    GATES.clear()

    def serve_one(*settings):
        servers.append(made(*settings).start())
        return servers[-1]

    yield serve_one
    for server in servers:
        server.api_set("trying").release.set()
        server.stop()


def principal_in(server):
    return server.api_set("trying").seen[-1].principal.name


def sessions_ended(server, reason):
    return sum(
        sample.value
        for family in server.server.services.metrics.collect()
        for sample in family.samples
        if family.name == "klamm:type=Listener,name=SessionsEnded" and sample.labels["reason"] == reason
    )


class Closes(RequestObserver):
    """An observer that records the reasons for which connections were closed."""

    def __init__(self, settings=None):
        self.reasons = REASONS

    def connection_closed(self, connection, reason):
        self.reasons.append(reason)


REASONS = []


class ClosesPlugin:
    @hookimpl
    def klamm_request_observers(self):
        yield Provider("closes", f"{__name__}:Closes")


ANOTHER_PRINCIPAL = "the rules now map the client certificate to another principal"


@pytest.mark.parametrize(
    ("rules", "ends"),
    [
        ("RULE:^CN=(.*?),.*$/$1/U", True),
        ("RULE:^OU=(.*)$/$1/", True),
        ("RULE:^CN=(al.*?),.*$/$1/, DEFAULT", False),
        ("RULE:^CN=(.*?),.*$/$1/", None),
    ],
)
@pytest.mark.parametrize("revoke_sessions", [True, False])
def test_changed_mapping_rules_end_sessions_whose_principal_changes(serve, files, rules, ends, revoke_sessions):
    REASONS.clear()

    def settings(text):
        return [
            *files.server_settings(client_auth="required", revoke_sessions=str(revoke_sessions).lower()),
            f'listeners.default.ssl.principal_mapping_rules="{text}"',
            'observers=["closes"]',
        ]

    server = serve(*settings("RULE:^CN=(.*?),.*$/$1/"))
    events = []
    server.server.services.admin_events.subscribe(events.append)
    with RawClient(server.address(), ssl_context=files.client_context(files.client)) as there:
        there.call(MetadataRequest(topics=None), 12)
        assert principal_in(server) == "alice"
        tables, problems = server.server.reconfigure(made(*settings(rules)).plan)
        assert (tables, problems) == ([] if ends is None else ["[listeners.default.ssl] principal_mapping_rules"], [])
        if not ends or not revoke_sessions:
            there.call(MetadataRequest(topics=None), 12)
            assert not [event for event in events if event.action == "sessions_ended"]
            return
        with pytest.raises((ssl.SSLError, ConnectionError)):
            there.receive_frame()
    (event,) = [event for event in events if event.action == "sessions_ended"]
    assert event.detail == f"{ANOTHER_PRINCIPAL}: connections of User:alice (1)"
    wait_until(lambda: REASONS)
    assert REASONS.pop() == f"session ended: {ANOTHER_PRINCIPAL}"
    assert sessions_ended(server, ANOTHER_PRINCIPAL) == 1


def test_new_connections_have_the_principal_of_changed_rules(serve, files):
    settings = files.server_settings(client_auth="required")
    server = serve(*settings)
    rules = 'listeners.default.ssl.principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/U"'
    assert server.server.reconfigure(made(*settings, rules).plan) == (
        ["[listeners.default.ssl] principal_mapping_rules"],
        [],
    )
    with RawClient(server.address(), ssl_context=files.client_context(files.client)) as client:
        client.call(MetadataRequest(topics=None), 12)
    assert principal_in(server) == "ALICE"
