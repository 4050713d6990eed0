"""Listeners that a reload adds to a running server and removes from it."""

import gc
import threading
import weakref

import pytest

from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.live_server import FIRST, OPEN_GATE, OpenGate, is_refused, ports, second, stuck, waiting_fetch
from tests.tls_files import TlsFiles
from tests.waiting import wait_until


def test_a_listener_is_added_used_removed_and_added_again(live, free_port):
    one = live()
    first = one.connect()
    assert one.change(FIRST + second(free_port)) == [f"[listeners.second] listens on 127.0.0.1:{free_port}", "done"]
    here = one.embedded.address("first")[1]
    client = one.connect("second")
    assert (ports(first), ports(client)) == ({here}, {free_port})
    assert one.labels() == {"first", "second"}
    assert one.change(FIRST) == ["[listeners.second] is removed; its connections end", "done"]
    assert is_refused(free_port)
    # The server reads commands of clients at most ten times a second.
    wait_until(lambda: one.labels() == {"first"})
    with pytest.raises(OSError):
        client.call(ApiVersionsRequest(), 0)
    wait_until(lambda: list(one.server.services.listeners) == ["first"])
    # The port is free again although connections to it have just ended.
    for _ in range(3):
        assert one.change(FIRST + second(free_port))[-1] == "done"
        assert ports(one.connect("second")) == {free_port}
        assert one.change(FIRST)[-1] == "done"
    assert ports(first) == {here}


class CallingLock:
    """A lock that calls a function before a thread takes the lock for the first time."""

    def __init__(self, lock, call):
        self.lock = lock
        self.call = call

    def __enter__(self):
        call, self.call = self.call, lambda: None
        call()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


@pytest.mark.interpreted
def test_a_client_that_changes_configs_during_a_reload_reverts_nothing(live):
    one = live(f"[server]\nio_threads = 3\n{FIRST}")
    reloaded = threading.Event()

    def reload_first():
        one.change(f"[server]\nio_threads = 9\n{FIRST}")
        reloaded.set()

    one.server.changing = CallingLock(one.server.changing, reload_first)
    one.server.dynamic.change({"listener.name.first.num.network.threads": "2"}, False)
    reloaded.wait()
    wait_until(lambda: len(one.listener("first").processors) == 2)
    assert (one.server.handler_pool.size, one.server.plan.server.io_threads) == (9, 9)


def test_a_client_cannot_set_configs_of_a_listener_that_is_being_removed(live, free_port, monkeypatch):
    key = "listener.name.second.num.network.threads"
    one = live(FIRST + second(free_port))
    monkeypatch.setattr(OpenGate, "open", lambda *_: one.server.dynamic.change({key: "2"}, False))
    third = f'[listeners.third]\nbind = "127.0.0.1:0"\n{OPEN_GATE}'
    assert one.change(FIRST + third) == [
        f"nothing changed: a client has set {key}: delete it by AlterConfigs before its listener goes"
    ]
    assert one.labels() == {"first", "second"}
    wait_until(lambda: len(one.listener("second").processors) == 2)
    monkeypatch.undo()
    one.server.dynamic.change({}, False)
    assert one.change(FIRST + third)[-1] == "done"


def test_a_listener_that_is_added_to_a_stopped_node_is_offline_until_the_node_starts(live):
    nodes = "[broker]\nnodes = 3\n"
    one = live(FIRST + nodes)
    one.embedded.nodes.stop(2)
    assert one.change(f'[listeners.second]\nbind = "127.0.0.1:0"\n{FIRST}{nodes}')[-1] == "done"
    here = [each.context for each in one.server.listeners if each.context.configured_as == "second"]
    assert [is_refused(each.bound.port) for each in here] == [False, True, False]
    one.embedded.nodes.start(2)
    assert ports(one.connect("second")) == {each.bound.port for each in here}


def test_a_port_moves_to_another_listener_and_no_connection_is_refused(live, free_port):
    one = live(FIRST + second(free_port))
    old = one.connect("second")
    text = FIRST + second(free_port).replace("second", "third")
    lines = one.change(text)
    assert lines == [
        f"[listeners.third] listens on 127.0.0.1:{free_port}",
        "[listeners.second] is removed; its connections end",
        "done",
    ]
    assert ports(one.connect("third")) == {free_port}
    with pytest.raises(OSError):
        old.call(ApiVersionsRequest(), 0)
    wait_until(lambda: one.labels() == {"first", "third"})


def test_a_unix_domain_socket_is_added_removed_and_added_again(live, tmp_path):
    one, path = live(), tmp_path / "klamm.sock"
    for _ in range(3):
        assert one.change(f'{FIRST}[listeners.second]\nbind = "unix:{path}"\n')[-1] == "done"
        one.connect("second").call(ApiVersionsRequest(), 0)
        assert one.change(FIRST)[-1] == "done"
        assert not path.exists()


def test_a_reload_reports_changes_that_take_effect_at_the_next_start(live, free_port):
    one = live(FIRST + second(free_port))
    lines = one.change(FIRST + second(free_port, "backlog = 7\n"))
    assert lines == [
        "[listeners.second] backlog has changed; this takes effect at the next start: "
        "a listener keeps its socket and its parts",
        "done",
    ]
    other = '[listeners.other]\nbind = "127.0.0.1:0"\napi_set = "echo"\n'
    assert one.change(FIRST + second(free_port) + other) == [
        "[listeners.other] has changed; this takes effect at the next start: a server opens its handler sets once",
        "done",
    ]


def test_a_client_that_never_reads_delays_the_end_of_a_listener_at_most_as_long_as_a_stop(live, free_port):
    one = live(FIRST + second(free_port))
    listener = one.listener("second")
    sender = stuck(one)
    assert one.change(FIRST)[-1] == "done"
    one.clock.advance_ms(20_000)
    assert not any(processor.ended for processor in listener.processors)
    one.clock.advance_ms(11_000)
    wait_until(lambda: list(one.server.services.listeners) == ["first"])
    assert all(processor.ended for processor in listener.processors)
    sender.join()


def test_a_listener_of_the_same_name_serves_while_the_earlier_one_still_drains(live, free_port):
    one = live(FIRST + second(free_port))
    sender = stuck(one)
    earlier = one.listener("second")
    (processor,) = earlier.processors
    assert one.change(FIRST)[-1] == "done"
    assert one.change(FIRST + second(free_port))[-1] == "done"
    client = one.connect("second")
    assert ports(client) == {free_port}
    assert not processor.ended
    assert one.labels() == {"first", "second"}
    # A stop ends both listeners within its own deadline.
    one.server.stop(deadline_ms=100)
    sender.join()
    assert processor.ended


def test_a_waiting_fetch_delays_the_end_of_a_listener_only_for_a_moment(live, free_port):
    one = live(FIRST + second(free_port))
    waiting_fetch(one.connect("second"))
    (processor,) = one.listener("second").processors
    wait_until(lambda: any(channel.in_flight is not None for channel in processor.channels))
    assert one.change(FIRST)[-1] == "done"
    wait_until(lambda: processor.ended)


def test_a_removed_listener_ends_after_its_last_response_is_sent(live, free_port, monkeypatch):
    one = live(FIRST + second(free_port))
    client = one.connect("second")
    (listener,) = (each for each in one.server.listeners if each.name == "second")
    started, release = threading.Event(), threading.Event()
    store = one.embedded.api_set().store
    write = store.write_and_wait

    def write_late(*arguments):
        started.set()
        release.wait()
        return write(*arguments)

    monkeypatch.setattr(store, "write_and_wait", write_late)
    correlation = client.send(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
    started.wait()
    assert one.change(FIRST)[-1] == "done"
    assert is_refused(free_port)
    assert not listener.processors[0].ended
    release.set()
    (created,) = client.receive(CreateTopicsRequest.API_KEY, 5, correlation).topics
    assert (created.name, created.error_code) == ("t", 0)
    wait_until(lambda: listener.processors[0].ended)


def test_a_removed_listener_cannot_be_put_online_again(live, free_port):
    one = live(FIRST + second(free_port))
    context = one.listener("second").context
    context.go_offline()
    assert one.change(FIRST)[-1] == "done"
    context.go_online()
    assert is_refused(free_port)


def test_a_reload_during_a_stop_changes_nothing(live, free_port):
    one = live()
    one.file.write_text(FIRST + second(free_port))
    one.server.stop()
    assert one.reload() == ["reload: nothing changed: the server stops", "reload: done"]
    assert is_refused(free_port)


def test_simultaneous_reloads_run_one_after_the_other(live, free_port):
    one = live()
    one.file.write_text(FIRST + second(free_port))
    threads = [threading.Thread(target=one.reload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.name for each in one.server.listeners] == ["first", "second"]
    assert ports(one.connect("second")) == {free_port}


def test_a_listener_with_tls_and_authorizer_is_added(live, free_port, tmp_path):
    files = TlsFiles(tmp_path)
    more = f"""
authorizer = "acl"
transport = "ssl"
[listeners.second.ssl]
certificate = "{files.server.certificate}"
private_key = "{files.server.key}"
"""
    one = live()
    lines = one.change(FIRST + second(free_port, more))
    assert lines[-1] == "done", lines
    client = one.connect("second", ssl_context=files.client_context())
    assert client.call(MetadataRequest(topics=None), 12).topics == []


def test_listeners_of_several_nodes_are_added_and_removed_together(live):
    one = live(FIRST + "[broker]\nnodes = 3\n")
    assert one.change('[listeners.second]\nbind = "127.0.0.1:0"\n' + FIRST + "[broker]\nnodes = 3\n")[-1] == "done"
    client = one.connect("second")
    wanted = {each.context.bound.port for each in one.server.listeners if each.context.configured_as == "second"}
    assert len(wanted) == 3
    assert ports(client) == wanted
    assert one.change(FIRST + "[broker]\nnodes = 3\n")[-1] == "done"
    wait_until(lambda: len(one.server.services.listeners) == 3)


def test_a_listener_with_dynamic_configs_cannot_be_removed(live, free_port):
    one = live(FIRST + second(free_port))
    one.server.dynamic.change({"listener.name.second.num.network.threads": "2"}, False)
    wait_until(lambda: len(one.listener("second").processors) == 2)
    key = "listener.name.second.num.network.threads"
    assert one.change(FIRST) == [
        f"nothing changed: a client has set {key}: delete it by AlterConfigs before its listener goes"
    ]
    one.server.dynamic.change({}, False)
    assert one.change(FIRST)[-1] == "done"


def test_a_reload_may_add_a_listener_and_change_settings_that_all_listeners_share(live, free_port):
    quotas = "[client_quota]\nclients = {{ batch = {{ producer_byte_rate = {} }} }}\n"
    one = live(FIRST + quotas.format(1000))
    lines = one.change(FIRST + second(free_port) + quotas.format(2000))
    assert lines == [
        f"[listeners.second] listens on 127.0.0.1:{free_port}",
        "[listeners.first.client_quota] clients has changed and is applied",
        "[listeners.second.client_quota] clients has changed and is applied",
        "done",
    ]
    assert one.listener("first").part("client_quota").settings == one.listener("second").part("client_quota").settings


@pytest.mark.interpreted
def test_a_removed_listener_leaves_nothing_in_memory(live, free_port, tmp_path):
    files = TlsFiles(tmp_path)
    more = f"""
authorizer = "acl"
authenticator = "sasl"
transport = "ssl"
filters = ["client_limits"]
[listeners.second.ssl]
certificate = "{files.server.certificate}"
private_key = "{files.server.key}"
[listeners.second.sasl]
mechanisms = ["SCRAM-SHA-256", "PLAIN"]
credential_stores = ["broker"]
"""
    one = live()
    assert one.change(FIRST + second(free_port, more))[-1] == "done"
    listener = one.listener("second")
    ended = [weakref.ref(each) for each in (listener, *listener.parts, *listener.processors)]
    client = one.connect("second", ssl_context=files.client_context())
    client.call(ApiVersionsRequest(), 0)
    del listener
    assert one.change(FIRST)[-1] == "done"
    wait_until(lambda: list(one.server.services.listeners) == ["first"])

    def left():
        gc.collect()
        return [each() for each in ended if each() is not None]

    # Cancelled timers are removed at the time when they are due.
    one.clock.advance_ms(120_000)
    wait_until(lambda: not left())
