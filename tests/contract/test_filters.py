"""Two stacked request filters before the embedded broker, and a second listener of the same broker without any."""

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
    """Notes its calls and the threads that they come on."""

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
    """Its clients see the topics whose names begin with PREFIX, without it. All changes are made in place."""

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
    """Refuses requests with one topic, by the name that the broker knows."""

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
    """The listener `default` has filters, the listener `plain` has none."""

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
        """Send a request to the listener with filters; its correlation id."""
        return self.client().send(request, VERSIONS[type(request)])

    def topics(self, listener="plain"):
        """What the broker knows."""
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
    """`serve(FILTER, …)` → a server with these filters, in that order."""
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
    """The calls so far, without threads."""
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
def test_requests_pass_in_order_and_responses_in_the_reverse(serve, dispatch):
    served = serve(First, Second, dispatch=dispatch)
    assert served.call(named()).error_code == 0
    assert calls() == there_and_back("Metadata", "First", "Second")


@on_epoll
def test_the_order_is_that_of_the_listener(serve):
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
    # The refusal passes the first filter alone: the client sees the name that it has sent.
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
def test_changes_in_place_are_seen_on_no_other_listener(serve):
    served = serve(Prefixing)
    served.call(created("orders"), "plain")
    served.call(created("orders"))
    # The broker keeps the metadata of a topic from one request to the next.
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
def test_a_filter_answers_by_itself(serve):
    served = serve(First, Answering, Second)
    assert served.call(named()).cluster_id == "of the filter"
    assert calls() == [
        ("First", "request", "Metadata"),
        ("Answering", "request", "Metadata"),
        ("First", "response", "Metadata"),
    ]
    assert served.call(named(), "plain").cluster_id != "of the filter"


@on_epoll
def test_a_filter_that_raises_fails_closed(serve, caplog):
    served = serve(Raising)
    (result,) = served.call(created("orders")).topics
    assert (result.name, result.error_code) == ("orders", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert served.topics() == []
    assert "ZeroDivisionError: on purpose" in caplog.text
    # Its connection and what the filter does not name go on.
    assert served.call(named()).cluster_id


@on_epoll
def test_a_filter_that_raises_at_a_response_keeps_it_back(serve):
    served = serve(RaisingLate)
    served.call(created("orders"), "plain")
    (topic,) = served.call(named("orders")).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])


def test_a_parked_fetch_passes_the_filters_when_it_is_answered(serve):
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
def test_a_produce_without_an_answer_passes_on_request_alone(serve):
    served = serve(Prefixing, NoSecret)
    served.call(created("orders"))
    CALLS.clear()
    served.send(produced("orders", acks=0))
    # Requests of a connection are handled in order.
    served.call(named("orders"))
    assert served.end_offset("tenant.orders") == 1
    produce = [("Prefixing", "request", "Produce"), ("NoSecret", "request", "Produce")]
    assert calls() == produce + there_and_back("Metadata", "Prefixing", "NoSecret")
    # Kafka's way to refuse where there is no answer.
    served.send(produced("secret", acks=0))
    assert served.client().at_end()


@on_epoll
def test_a_filter_sees_only_what_it_names(serve):
    served = serve(First, All)
    served.call(ApiVersionsRequest("raw", "1"))
    served.call(created("orders"))
    assert calls() == there_and_back("ApiVersions", "All") + there_and_back("CreateTopics", "All")


@on_epoll
def test_api_versions_may_be_named(serve):
    served = serve(OfferingLess)

    def offered(listener):
        return {one.api_key for one in served.call(ApiVersionsRequest("raw", "1"), listener).api_keys}

    for _ in range(2):
        assert offered("plain") - offered("default") == {ApiKey.DELETE_TOPICS}
    assert set(calls()) == set(there_and_back("ApiVersions", "OfferingLess"))


@on_epoll
def test_a_blocking_filter_has_its_apis_on_handler_threads(serve):
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
