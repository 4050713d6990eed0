"""Tests of parts that break their contract while requests run.

The server logs one line that names the part, and the client gets an answer or a closed connection.
"""

import logging

import pytest

from klamm import (
    ANONYMOUS,
    ApiSet,
    AuthenticatorFactory,
    ConnectionGate,
    ErrorCode,
    Provider,
    RequestFilter,
    Transport,
    handles,
    hookimpl,
)
from klamm.acl import AclOperation, Authorizer, ResourceType
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import find_coordinator, heartbeat, metadata

UNKNOWN = int(ErrorCode.UNKNOWN_SERVER_ERROR)


class Odd(ApiSet):
    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request, context):
        for _ in range(3):
            context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, "t")
        return metadata.MetadataResponse()

    @handles(find_coordinator, versions=range(0, 4), blocking=False)
    def find_coordinator(self, request, context):
        return {"none": None, "message": heartbeat.HeartbeatResponse()}.get(request.key, request.key)

    @handles(heartbeat, versions=heartbeat.VERSIONS, blocking=False)
    def heartbeat(self, request, context):
        def make():
            if request.group_id == "raise":
                raise ZeroDivisionError("on purpose")
            return heartbeat.HeartbeatResponse(error_code=int(request.member_id))

        if request.generation_id:
            return context.respond_after(request.generation_id, make)
        context.answer(make)
        return context.later()


class Forgetful(RequestFilter):
    api_keys = (metadata.API_KEY,)

    def on_request(self, message, context):
        message.topics = None


class ForgetfulLater(RequestFilter):
    api_keys = (metadata.API_KEY,)

    def on_response(self, response, context):
        response.brokers = []


class Torn(Transport):
    def wrap(self, sock, peer):
        raise ZeroDivisionError("on purpose")


class Nothing(Transport):
    def wrap(self, sock, peer):
        return None


class NoAuthenticator(AuthenticatorFactory):
    def authenticator(self, connection, transport):
        return ANONYMOUS


class Yes(ConnectionGate):
    """A gate that returns True instead of None to admit a connection."""

    def admit(self, address):
        return True

    def release(self, address):
        pass


class Raising(ConnectionGate):
    def admit(self, address):
        return None

    def release(self, address):
        raise ZeroDivisionError("on purpose")


class Undecided(Authorizer):
    def authorize(self, context, operation, resource_type, resource_name, *, log_if_denied=True):
        pass

    def authorize_by_resource_type(self, context, operation, resource_type):
        return True


class Broken(Undecided):
    def authorize(self, context, operation, resource_type, resource_name, *, log_if_denied=True):
        raise ZeroDivisionError("on purpose")


def providers(*kinds):
    return [Provider(kind.__name__.lower(), f"{__name__}:{kind.__name__}") for kind in kinds]


class Plugin:
    @hookimpl
    def klamm_api_sets(self):
        return providers(Odd)

    @hookimpl
    def klamm_request_filters(self):
        return providers(Forgetful, ForgetfulLater)

    @hookimpl
    def klamm_transports(self):
        return providers(Torn, Nothing)

    @hookimpl
    def klamm_authenticators(self):
        return providers(NoAuthenticator)

    @hookimpl
    def klamm_connection_gates(self):
        return providers(Yes, Raising)

    @hookimpl
    def klamm_authorizers(self):
        return providers(Undecided, Broken)


@pytest.fixture
def serve(caplog):
    servers = []

    def start(*settings):
        lines = ["listeners.default.api_set=odd", *(f"listeners.default.{one}" for one in settings)]
        servers.append(EmbeddedServer(lines, plugins=[Plugin()]).start())
        return servers[-1]

    with caplog.at_level(logging.ERROR):
        yield start
    for server in servers:
        server.stop()


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("key", "returned"), [("none", "None"), ("message", "HeartbeatResponse"), ("some text", "'some text'")]
)
def test_a_handler_that_returns_the_wrong_type_is_logged_and_answered(serve, caplog, key, returned):
    with RawClient(serve().address()) as client:
        for _ in range(3):
            assert client.call(find_coordinator.FindCoordinatorRequest(key=key), 3).error_code == UNKNOWN
    (line,) = lines(caplog)
    assert f"handler failed: {__name__}.Odd.find_coordinator of the api set odd of embedded-0" in line
    assert "expected a FindCoordinatorResponse, got " + returned in caplog.text


@pytest.mark.parametrize(
    ("name", "method", "expected"),
    [
        ("forgetful", "on_request", "expected a MetadataRequest or an Answer, got None"),
        ("forgetfullater", "on_response", "expected a MetadataResponse, got None"),
    ],
)
def test_a_filter_that_forgets_to_return_is_logged_and_answered(serve, caplog, name, method, expected):
    with RawClient(serve(f'filters=["{name}"]').address()) as client:
        for _ in range(3):
            client.call(metadata.MetadataRequest(topics=None), 12)
    (line,) = lines(caplog)
    assert f"filter failed in {method}: request filter {name} of embedded-0 ? ({__name__}.Forgetful" in line
    assert expected in caplog.text


@pytest.mark.parametrize(
    ("name", "cause"), [("torn", "on purpose"), ("nothing", "expected a TransportLayer, got None")]
)
def test_a_transport_whose_wrap_fails_is_logged_and_closes_the_connection(serve, caplog, name, cause):
    server = serve(f"transport={name}")
    for _ in range(3):
        with RawClient(server.address()) as client:
            assert client.at_end()
    (line,) = lines(caplog)
    assert line.startswith(f"listener=default: transport {name} of embedded-0 ? (")
    assert line.endswith("failed in wrap")
    assert cause in caplog.text


def test_a_factory_that_returns_no_authenticator_is_logged_and_closes_the_connection(serve, caplog):
    server = serve("authenticator=noauthenticator")
    for _ in range(3):
        with RawClient(server.address()) as client:
            client.send_frame(b"anything")
            assert client.at_end()
    (line,) = lines(caplog)
    assert "authenticator noauthenticator of embedded-0" in line
    assert "expected an Authenticator, got " in caplog.text


@pytest.mark.parametrize(
    ("name", "method", "cause"),
    [("yes", "admit", "expected None or a Refuse or a Delay, got True"), ("raising", "release", "on purpose")],
)
def test_a_failing_gate_is_logged_in_one_line(serve, caplog, name, method, cause):
    server = serve(f'gates=["{name}"]')
    for _ in range(5):
        with RawClient(server.address()) as client:
            if name == "yes":
                assert client.at_end()
            else:
                client.call(metadata.MetadataRequest(topics=None), 12)
    server.stop()
    (line,) = lines(caplog)
    assert (
        line
        == f"listener=default: connection gate {name} of embedded-0 ? ({__name__}.{name.title()}) failed in {method}"
    )
    assert cause in caplog.text


@pytest.mark.parametrize(
    ("name", "cause"), [("undecided", "expected True or False, got None"), ("broken", "on purpose")]
)
def test_a_failing_authorizer_is_logged_in_one_line(serve, caplog, name, cause):
    with RawClient(serve(f"authorizer={name}").address()) as client:
        for _ in range(3):
            client.call(metadata.MetadataRequest(topics=None), 12)
    (line,) = lines(caplog)
    assert (
        line == f"listener=default: authorizer {name} of embedded-0 ? ({__name__}.{name.title()}) failed in authorize"
    )
    assert cause in caplog.text


@pytest.mark.parametrize("delay_ms", [0, 1])
def test_an_exception_in_a_later_answer_is_an_error_response(serve, caplog, delay_ms):
    with RawClient(serve().address()) as client:

        def ask(group, member="7"):
            return client.call(heartbeat.HeartbeatRequest(group, delay_ms, member), 4).error_code

        assert ask("well") == 7
        assert ask("raise") == UNKNOWN
        assert ask("well", "not a number") == UNKNOWN
        assert ask("well") == 7
    assert "ZeroDivisionError: on purpose" in caplog.text
