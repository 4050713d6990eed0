"""Tests of request filters before a broker. A second listener of the same broker has no filters."""

import threading

import pytest

from bench.frames import record_batch
from klamm import Answer, ErrorCode, KafkaError, Provider, RequestFilter, hookimpl
from klamm.cli.main import main
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.waiting import wait_until

CALLS = []
PREFIX = "tenant."
VERSIONS = {MetadataRequest: 9, CreateTopicsRequest: 5, ProduceRequest: 9, FetchRequest: 12, ApiVersionsRequest: 3}
VERSIONS |= {ListOffsetsRequest: 7, FindCoordinatorRequest: 3}
BATCH = record_batch(1, 10)

on_epoll = pytest.mark.parametrize("channel", ["epoll"])


class Noting(RequestFilter):
    """A filter that records its calls and the threads that call it."""

    api_keys = (ApiKey.METADATA, ApiKey.FETCH)

    def note(self, call, context):
        CALLS.append((type(self).__name__, call, context.api_name, threading.current_thread().name))

    def on_request(self, message, context):
        self.note("request", context)
        return message

    def on_response(self, response, context):
        self.note("response", context)
        return response


class First(Noting):
    pass


class Second(Noting):
    pass


class Blocking(Noting):
    blocking = True
    api_keys = (ApiKey.METADATA,)


class All(Noting):
    api_keys = None


class Prefixing(Noting):
    """A filter that adds PREFIX to topic names in requests, and removes it in responses.

    It changes messages in place.
    """

    api_keys = (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.CREATE_TOPICS)

    def on_request(self, message, context):
        self.note("request", context)
        for topic in message.topic_data if context.api_key == ApiKey.PRODUCE else message.topics:
            topic.name = PREFIX + topic.name
        return message

    def on_response(self, response, context):
        self.note("response", context)
        for topic in response.responses if context.api_key == ApiKey.PRODUCE else response.topics:
            topic.name = topic.name.removeprefix(PREFIX)
        return response


class NoSecret(Noting):
    """A filter that refuses requests with the topic `secret`, by the name with the prefix."""

    api_keys = (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.CREATE_TOPICS)

    def on_request(self, message, context):
        self.note("request", context)
        topics = message.topic_data if context.api_key == ApiKey.PRODUCE else message.topics
        if any(topic.name == f"{PREFIX}secret" for topic in topics):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return message


class Answering(Noting):
    def on_request(self, message, context):
        self.note("request", context)
        return Answer(MetadataResponse(cluster_id="of the filter"))


class Raising(Noting):
    api_keys = (ApiKey.CREATE_TOPICS,)

    def on_request(self, message, context):
        raise ZeroDivisionError("on purpose")


class RaisingLate(Noting):
    api_keys = (ApiKey.METADATA,)

    def on_response(self, response, context):
        raise ZeroDivisionError("on purpose")


class OfferingLess(Noting):
    api_keys = (ApiKey.API_VERSIONS,)

    def on_response(self, response, context):
        self.note("response", context)
        response.api_keys = [one for one in response.api_keys if one.api_key != ApiKey.DELETE_TOPICS]
        return response


FILTERS = (First, Second, Blocking, All, Prefixing, NoSecret, Answering, Raising, RaisingLate, OfferingLess)


class Parts:
    @hookimpl
    def klamm_request_filters(self):
        for one in FILTERS:
            yield Provider(one.__name__.lower(), f"{__name__}:{one.__name__}")


class Served:
    """A server: its listener `default` has the filters, its listener `plain` has none."""

    def __init__(self, settings, client_options):
        self._options = client_options
        self._clients = {}
        self.embedded = EmbeddedServer(settings, plugins=[Parts()]).start()

    def client(self, listener="default"):
        if listener not in self._clients:
            self._clients[listener] = RawClient(self.embedded.address(listener), timeout_s=10, **self._options)
        return self._clients[listener]

    def call(self, request, listener="default"):
        return self.client(listener).call(request, VERSIONS[type(request)])

    def send(self, request):
        """Send a request to the listener with filters. Return its correlation id."""
        return self.client().send(request, VERSIONS[type(request)])

    def topics(self, listener="plain"):
        """Return the topics that the broker knows."""
        return [(topic.error_code, topic.name) for topic in self.call(MetadataRequest(None), listener).topics]

    def end_offset(self, topic):
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])
        answer = self.call(ListOffsetsRequest(topics=[wanted]), "plain")
        return answer.topics[0].partitions[0].offset

    def stop(self):
        for client in self._clients.values():
            client.close()
        self.embedded.stop()


@pytest.fixture
def serve(on_channel, client_options):
    """Yield `serve(FILTER, …)`, which starts a server with these filters, in this order."""
    CALLS.clear()
    servers = []

    def serve_one(*filters, dispatch="hybrid"):
        names = ", ".join(f'"{one.__name__.lower()}"' for one in filters)
        own = [f"listeners.default.filters=[{names}]", f"listeners.default.dispatch={dispatch}"]
        plain = ["listeners.plain.bind=127.0.0.1:0", "server.io_threads=1"]
        settings = [*own, *plain, *on_channel(), *on_channel("plain")]
        servers.append(Served(settings, client_options))
        return servers[-1]

    yield serve_one
    for server in servers:
        server.stop()


def calls():
    """Return the calls so far, without their threads."""
    return [call[:3] for call in CALLS]


def created(*names):
    return CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names])


def named(*names):
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)


def produced(topic, acks=-1):
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, BATCH)])]
    return ProduceRequest(None, acks, 1000, data)


def fetched(topic, max_wait_ms=0):
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic, partitions=[FETCHED])])


FETCHED = FetchPartition(0, partition_max_bytes=1 << 20)


def there_and_back(api, *names):
    return [(name, "request", api) for name in names] + [(name, "response", api) for name in reversed(names)]


@pytest.mark.parametrize("dispatch", ["hybrid", "pool"])
def test_requests_pass_the_filters_in_order_and_responses_in_reverse_order(serve, dispatch):
    served = serve(First, Second, dispatch=dispatch)
    assert served.call(named()).error_code == 0
    assert calls() == there_and_back("Metadata", "First", "Second")


@on_epoll
def test_the_order_of_filters_is_that_of_the_listeners_setting(serve):
    serve(Second, First).call(named())
    assert calls() == there_and_back("Metadata", "Second", "First")


def test_one_filter_renames_topics_and_the_next_refuses_one(serve):
    served = serve(Prefixing, NoSecret)
    assert [(one.name, one.error_code) for one in served.call(created("orders")).topics] == [("orders", 0)]
    (answer,) = served.call(produced("orders")).responses
    assert (answer.name, answer.partition_responses[0].error_code) == ("orders", 0)
    assert [(one.name, one.error_code) for one in served.call(named("orders")).topics] == [("orders", 0)]
    assert served.topics() == [(0, "tenant.orders")]
    assert served.end_offset("tenant.orders") == 1

    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    CALLS.clear()
    # Only the first filter sees the response, because the second has refused the request. So the client sees the name
    # that it has sent.
    assert [(one.name, one.error_code) for one in served.call(created("secret")).topics] == [("secret", refused)]
    assert calls() == [
        ("Prefixing", "request", "CreateTopics"),
        ("NoSecret", "request", "CreateTopics"),
        ("Prefixing", "response", "CreateTopics"),
    ]
    (answer,) = served.call(produced("secret")).responses
    assert (answer.name, answer.partition_responses[0].error_code) == ("secret", refused)
    assert [(one.name, one.error_code) for one in served.call(named("secret")).topics] == [("secret", refused)]
    assert served.topics() == [(0, "tenant.orders")]


@on_epoll
def test_changes_of_messages_in_place_do_not_appear_on_another_listener(serve):
    served = serve(Prefixing)
    served.call(created("orders"), "plain")
    served.call(created("orders"))
    # The broker keeps the metadata of a topic for later requests, and the filter must not change the kept object.
    for _ in range(2):
        assert [one.name for one in served.call(named("orders")).topics] == ["orders"]
        assert served.topics() == [(0, "orders"), (0, "tenant.orders")]


@on_epoll
def test_filters_see_each_of_many_equal_requests(serve):
    served = serve(First)
    sent = [served.send(named()) for _ in range(300)]
    for correlation_id in sent:
        served.client().receive(ApiKey.METADATA, VERSIONS[MetadataRequest], correlation_id)
    assert calls() == there_and_back("Metadata", "First") * len(sent)


@on_epoll
def test_a_filter_can_answer_a_request_itself(serve):
    served = serve(First, Answering, Second)
    assert served.call(named()).cluster_id == "of the filter"
    assert calls() == [
        ("First", "request", "Metadata"),
        ("Answering", "request", "Metadata"),
        ("First", "response", "Metadata"),
    ]
    assert served.call(named(), "plain").cluster_id != "of the filter"


@on_epoll
def test_a_request_is_not_handled_if_a_filter_raises(serve, caplog):
    served = serve(Raising)
    (result,) = served.call(created("orders")).topics
    assert (result.name, result.error_code) == ("orders", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert served.topics() == []
    assert "ZeroDivisionError: on purpose" in caplog.text
    # The connection goes on, and so do APIs that the filter does not name.
    assert served.call(named()).cluster_id


@on_epoll
def test_a_client_gets_an_error_response_if_a_filter_raises_on_the_response(serve):
    served = serve(RaisingLate)
    served.call(created("orders"), "plain")
    (topic,) = served.call(named("orders")).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])


def test_the_response_of_a_waiting_fetch_passes_the_filters(serve):
    served = serve(First, Second)
    served.call(created("orders"), "plain")
    correlation_id = served.send(fetched("orders", max_wait_ms=60_000))
    wait_until(served.embedded.api_set().fetch_purgatory.watched)
    assert calls() == there_and_back("Fetch", "First", "Second")[:2]
    served.call(produced("orders"), "plain")
    response = served.client().receive(ApiKey.FETCH, VERSIONS[FetchRequest], correlation_id)
    assert len(bytes(response.responses[0].partitions[0].records)) == len(BATCH)
    assert calls() == there_and_back("Fetch", "First", "Second")


@on_epoll
def test_a_produce_without_a_response_passes_filters_only_as_a_request(serve):
    served = serve(Prefixing, NoSecret)
    served.call(created("orders"))
    CALLS.clear()
    served.send(produced("orders", acks=0))
    # The server handles requests of a connection in order, so the produce request was handled before this one.
    served.call(named("orders"))
    assert served.end_offset("tenant.orders") == 1
    produce = [("Prefixing", "request", "Produce"), ("NoSecret", "request", "Produce")]
    assert calls() == produce + there_and_back("Metadata", "Prefixing", "NoSecret")
    # Kafka also closes the connection to refuse a request that has no response.
    served.send(produced("secret", acks=0))
    assert served.client().at_end()


@on_epoll
def test_a_filter_sees_only_the_apis_that_it_names(serve):
    served = serve(First, All)
    served.call(ApiVersionsRequest("raw", "1"))
    served.call(created("orders"))
    assert calls() == there_and_back("ApiVersions", "All") + there_and_back("CreateTopics", "All")


@on_epoll
def test_a_filter_may_name_api_versions(serve):
    served = serve(OfferingLess)

    def offered(listener):
        return {one.api_key for one in served.call(ApiVersionsRequest("raw", "1"), listener).api_keys}

    for _ in range(2):
        assert offered("plain") - offered("default") == {ApiKey.DELETE_TOPICS}
    assert set(calls()) == set(there_and_back("ApiVersions", "OfferingLess"))


@on_epoll
def test_the_apis_of_a_blocking_filter_run_on_handler_threads(serve):
    served = serve(First, Blocking)
    served.call(created("orders"), "plain")
    served.call(named())
    served.call(fetched("orders"))
    threads = {(name, call, api): thread for name, call, api, thread in CALLS}
    on_handlers = {call for call, thread in threads.items() if "handler" in thread}
    assert on_handlers == set(there_and_back("Metadata", "First", "Blocking"))
    assert set(threads) - on_handlers == set(there_and_back("Fetch", "First"))


def test_check_names_a_filter_that_does_not_exist(tmp_path, capsys):
    file = tmp_path / "klamm.toml"
    file.write_text('[listeners.default]\nbind = "127.0.0.1:0"\nfilters = ["audti"]\n', encoding="utf-8")
    assert main(["check", str(file)]) == 2
    problem = 'unknown request filter "audti"; did you mean "audit"?'
    assert f"{file}:3:1  listeners.default.filters: {problem}" in capsys.readouterr().err
