"""Tests of revoked credentials: the connections that authenticated with them are closed, over every transport."""

import time

import pytest

from klamm.sasl import ScramCredential, ScramMechanism
from klamm.testing import EmbeddedServer, MovingClock
from klamm.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest
from tests.sasl_client import log_in, users_setting

MECHANISM = ScramMechanism.SCRAM_SHA_256
WAIT_MS = 30_000


def upsertion(user, password):
    made = ScramCredential.from_password(MECHANISM, password, b"a salt of this test only")
    salted = MECHANISM.salted_password(password.encode(), made.salt, made.iterations)
    return ScramCredentialUpsertion(user, MECHANISM.type_code, made.iterations, made.salt, salted)


def alter(client, *upsertions, remove=()):
    deletions = [ScramCredentialDeletion(user, MECHANISM.type_code) for user in remove]
    results = client.call(AlterUserScramCredentialsRequest(deletions, list(upsertions)), 0).results
    assert {result.error_code for result in results} == {0}


def ended_after_s(client):
    """Return after how many seconds the connection is closed."""
    started_s = time.monotonic()
    assert client.at_end()
    return time.monotonic() - started_s


@pytest.fixture
def serve(on_channel):
    """Yield a broker that keeps its users in its own store. Only the administrator is in the configuration."""
    servers = []

    def one(*settings):
        given = [
            "listeners.default.authenticator=sasl",
            'listeners.default.sasl.mechanisms=["SCRAM-SHA-256", "PLAIN"]',
            "listeners.default." + users_setting(admin="root"),
            *(f"listeners.default.sasl.{setting}" for setting in settings),
            *on_channel(),
        ]
        server = EmbeddedServer(given, clock=MovingClock()).start()
        servers.append(server)
        server.events = []
        server.server.services.admin_events.subscribe(server.events.append)
        return server

    yield one
    for server in servers:
        server.stop()


@pytest.fixture
def logged_in(connect):
    def one(server, user, password, mechanism="SCRAM-SHA-256"):
        client = connect(server)
        assert log_in(client, mechanism, user, password).error_code == 0
        return client

    return one


def is_served(client):
    try:
        return bool(client.call(MetadataRequest(topics=None), 12).brokers)
    except ConnectionError:
        return False


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_changed_password_closes_connections_at_once_in_any_state(serve, logged_in, mechanism):
    server = serve()
    server.api_set().topics.create("t", 1, {})
    admin = logged_in(server, "admin", "root")
    alter(admin, upsertion("alice", "sesame"), upsertion("bob", "opens"))
    idle, waiting, bob = (
        logged_in(server, "alice", "sesame", mechanism),
        logged_in(server, "alice", "sesame", mechanism),
        logged_in(server, "bob", "opens", mechanism),
    )
    topics = [FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1000)])]
    waiting.send(FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, topics=topics), 11)
    assert is_served(idle)
    alter(admin, upsertion("alice", "other"))
    assert ended_after_s(idle) + ended_after_s(waiting) < WAIT_MS / 1000 / 2
    assert is_served(bob)
    assert is_served(admin)
    (event,) = [event for event in server.events if event.action == "sessions_ended"]
    assert event.detail == "the credential has changed: connections of User:alice (2)"
    assert is_served(logged_in(server, "alice", "other", mechanism))
    (sample,) = next(
        family.samples
        for family in server.server.services.metrics.collect()
        if family.name == "klamm:type=Listener,name=SessionsEnded"
    )
    assert sample.labels == {"listener": "default", "reason": "the credential has changed"}
    assert sample.value >= 1, "the idle connection is counted, and the other one only when its Fetch is answered"


def test_a_user_that_changes_its_own_password_gets_its_answer(serve, logged_in):
    server = serve()
    alter(logged_in(server, "admin", "root"), upsertion("alice", "sesame"))
    alice = logged_in(server, "alice", "sesame")
    alter(alice, upsertion("alice", "other"))
    assert alice.at_end()


def test_a_removed_user_is_disconnected(serve, logged_in):
    server = serve()
    admin = logged_in(server, "admin", "root")
    alter(admin, upsertion("alice", "sesame"))
    alice = logged_in(server, "alice", "sesame")
    alter(admin, remove=["alice"])
    assert alice.at_end()


def test_a_setting_keeps_connections_open_as_kafka_does(serve, logged_in):
    server = serve("revoke_sessions=false", "connections_max_reauth_ms=600000")
    admin = logged_in(server, "admin", "root")
    alter(admin, upsertion("alice", "sesame"))
    alice = logged_in(server, "alice", "sesame")
    alter(logged_in(server, "admin", "root"), remove=["alice"])
    assert is_served(alice)
    assert not [event for event in server.events if event.action == "sessions_ended"]
    # The session has expired, and the next request closes the connection.
    server.advance_ms(600_000)
    assert not is_served(alice)


def test_a_session_that_is_not_renewed_ends_with_the_next_request(serve, logged_in):
    server = serve("connections_max_reauth_ms=600000")
    admin = logged_in(server, "admin", "root")
    assert is_served(admin)
    server.advance_ms(600_000)
    assert not is_served(admin)
