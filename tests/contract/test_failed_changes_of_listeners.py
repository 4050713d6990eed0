"""Changes of listeners that fail: a reload undoes what it has started, and names the reason."""

import dataclasses
import errno
import logging
import socket

import pytest

from klamm.server.serving import reload
from klamm.testing import EmbeddedServer
from tests.contract.live_server import FIRST, OPEN_GATE, OpenGate, Plugin, is_refused, ports, second, stuck
from tests.waiting import wait_until


class NotedPoller:
    """A poller that records whether it is closed."""

    closed = False

    def __init__(self, poller):
        self._poller = poller

    def __getattr__(self, name):
        return getattr(self._poller, name)

    def close(self):
        self.closed = True
        self._poller.close()


class FewPollers:
    """The threads of a server that can watch only `room` further pollers."""

    def __init__(self, threads, room=3):
        self._threads = threads
        self._room = room
        self.pollers = []

    def __getattr__(self, name):
        return getattr(self._threads, name)

    def watch(self, poller):
        if len(self.pollers) == self._room:
            raise OSError(errno.EMFILE, "too few descriptors")
        self.pollers.append(NotedPoller(poller))
        return self.pollers[-1]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("bakclog = 3\n", 'klamm.toml:5:1  listeners.second.bakclog: unknown key; did you mean "backlog"?'),
        (
            'transport = "ssl"\n[listeners.second.ssl]\ncertificate = "none.pem"\nprivate_key = "none.key"\n',
            "klamm.toml:8:1  listeners.second.ssl.private_key: ",
        ),
        (
            'gates = ["connection_quota", "failing"]\n',
            "klamm.toml:3:1  listeners.second: listener second: ",
        ),
    ],
)
def test_nothing_changes_if_the_configuration_of_an_added_listener_is_wrong(live, free_port, more, problem):
    one = live()
    lines = one.change(FIRST + second(free_port, more))
    assert len(lines) == 1
    assert lines[0].startswith("nothing changed: ")
    assert problem in lines[0]
    assert is_refused(free_port)
    assert one.labels() == {"first"}


@pytest.mark.parametrize(
    ("more", "problem"),
    [("processors = 4\n", "too few descriptors"), ('processors = 3\nassigner = "failing"\n', "out of order")],
)
def test_an_added_listener_that_cannot_open_releases_its_processors(monkeypatch, live, free_port, more, problem):
    one = live()
    few = FewPollers(one.server.services.threads)
    monkeypatch.setattr(one.server.services, "threads", few)
    (line,) = one.change(FIRST + second(free_port, more))
    assert line.startswith("nothing changed: ")
    assert problem in line
    assert [poller.closed for poller in few.pollers] == [True] * 3
    assert is_refused(free_port)


def test_nothing_changes_if_a_port_is_taken(live):
    one = live()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = FIRST + second(port)
        lines = one.change("[server]\nio_threads = 3\n" + text)
        cannot = f"listener second: cannot bind 127.0.0.1:{port}: Address already in use"
        assert lines == [f"nothing changed: {one.file}:6:1  listeners.second.bind: {cannot}"]
        assert one.server.handler_pool.size == 8
        assert (one.labels(), list(one.server.services.listeners)) == ({"first"}, ["first"])
    assert one.change(text)[-1] == "done"


@pytest.mark.parametrize(
    "thread", ["klamm-handler-9", "klamm-processor-second-0", "klamm-processor-second-1", "klamm-acceptor-second"]
)
def test_nothing_changes_if_a_thread_cannot_start(live, free_port, without_thread, caplog, thread):
    one = live()
    level = one.server.plan.server.log_level
    caplog.set_level(level)
    text = f'[server]\nio_threads = 12\nlog_level = "DEBUG"\n{FIRST}{second(free_port, "processors = 2")}'
    where = "[server] io_threads = 12: " if "handler" in thread else ""
    with without_thread(thread):
        assert one.change(text) == [f"nothing changed: {where}can't start new thread"]
    assert is_refused(free_port)
    assert (one.labels(), list(one.server.services.listeners)) == ({"first"}, ["first"])
    assert [each.name for each in one.server.listeners] == ["first"]
    wait_until(lambda: one.server.handler_pool.size == 8)
    assert (one.server.plan.server.io_threads, one.server.plan.server.log_level) == (8, level)
    assert logging.getLevelName(logging.getLogger().level) == level
    assert one.change(text)[-1] == "done"
    assert ports(one.connect("second")) == {free_port}


def sized(io_threads, *processors):
    """Return a file with two listeners and these numbers of threads."""
    listeners = zip((FIRST, second(0)), processors, strict=True)
    return f"[server]\nio_threads = {io_threads}\n" + "".join(f"{text}processors = {n}\n" for text, n in listeners)


def numbers(one):
    """Return the numbers of threads in the plan, and of those that run."""
    running = [one.server.handler_pool.size, *(len(each.all_processors) for each in one.server.listeners)]
    planned = [one.server.plan.server.io_threads, *(each.settings.processors for each in one.server.plan.listeners)]
    return running, planned


@pytest.mark.parametrize(
    ("before", "after", "thread", "where"),
    [
        ((2, 1, 3), (4, 3, 1), "klamm-handler-3", "[server] io_threads = 4"),
        ((2, 1, 3), (1, 3, 1), "klamm-processor-first-1", "[listeners.first] processors = 3"),
        ((2, 1, 3), (1, 3, 1), "klamm-processor-first-2", "[listeners.first] processors = 3"),
        ((2, 1, 1), (4, 3, 1), "klamm-acceptor-first", "[listeners.first] processors = 3"),
        ((4, 2, 2), (2, 3, 4), "klamm-processor-second-3", "[listeners.second] processors = 4"),
        ((4, 3, 1), (5, 1, 2), "klamm-acceptor-second", "[listeners.second] processors = 2"),
    ],
)
def test_numbers_of_threads_change_together_or_not_at_all(live, without_thread, before, after, thread, where):
    one = live(sized(*before))
    clients = [one.connect(name) for name in ("first", "second") for _ in range(3)]
    with without_thread(thread):
        assert one.change(sized(*after)) == [f"nothing changed: {where}: can't start new thread"]
    wait_until(lambda: numbers(one) == (list(before), list(before)))
    for client in [*clients, one.connect("first"), one.connect("second")]:
        assert ports(client)
    assert one.change(sized(*after))[-1] == "done"
    wait_until(lambda: numbers(one) == (list(after), list(after)))
    for client in [*clients, one.connect("first"), one.connect("second")]:
        assert ports(client)


def test_threads_that_go_stay_if_a_listener_cannot_be_added(live, free_port, without_thread):
    one = live(sized(4, 3, 2))
    third = second(free_port).replace("second", "third")
    with without_thread("klamm-processor-third"), without_thread("klamm-handler"):
        assert one.change(sized(2, 1, 1) + third) == ["nothing changed: can't start new thread"]
    assert numbers(one) == ([4, 3, 2], [4, 3, 2])


@pytest.mark.parametrize("room", [0, 1, 2])
def test_processors_stay_if_the_system_has_no_descriptor_left(live, room):
    one = live()
    listener, threads = one.listener("first"), one.server.services.threads
    few = FewPollers(threads, room)

    def use(threads):
        listener.runtime = listener._accepting._runtime = dataclasses.replace(listener.runtime, threads=threads)

    use(few)
    with pytest.raises(OSError, match="too few descriptors"):
        listener.resize(3)
    assert (len(listener.processors), [poller.closed for poller in few.pollers]) == (1, [True] * room)
    assert ports(one.connect())
    use(threads)
    listener.resize(3)
    assert ports(one.connect())


def test_a_client_may_request_threads_again_after_they_could_not_start(live, without_thread, caplog):
    one, key = live(), "listener.name.first.num.network.threads"
    with without_thread("klamm-processor-first-2"):
        one.server.dynamic.change({key: "3"}, False)
        text = "cannot be changed by a client: [listeners.first] processors = 3: can't start new thread"
        wait_until(lambda: text in caplog.text)
    assert numbers(one)[1][1:] == [1]
    wait_until(lambda: one.server.dynamic._is_applied is False)
    one.server.dynamic.change({key: "3"}, False)
    wait_until(lambda: len(one.listener("first").processors) == 3)


def test_a_listener_that_cannot_start_does_not_end_an_earlier_one_of_the_same_name(live, free_port, without_thread):
    one = live(FIRST + second(free_port))
    sender = stuck(one)
    context = one.listener("second").context
    assert one.change(FIRST)[-1] == "done"
    with without_thread("klamm-processor-second"):
        assert one.change(FIRST + second(free_port)) == ["nothing changed: can't start new thread"]
    assert one.server.services.listeners["second"] is context
    one.server.stop(deadline_ms=100)
    sender.join()


@pytest.mark.parametrize("stops", [False, True])
def test_a_removed_listener_ends_although_its_thread_cannot_start(live, free_port, without_thread, monkeypatch, stops):
    closed = []
    monkeypatch.setattr(OpenGate, "close", lambda gate: closed.append(gate))
    one = live(FIRST + second(free_port, OPEN_GATE))
    with without_thread("removed"):
        assert one.change(FIRST) == ["[listeners.second] is removed; its connections end", "done"]
    assert [each.name for each in one.server.plan.listeners] == ["first"]
    assert (is_refused(free_port), closed) == (True, [])
    if stops:
        one.server.stop()
    else:
        assert one.change(FIRST) == ["done"]
        wait_until(lambda: closed)
    wait_until(lambda: list(one.server.services.listeners) == ["first"])
    assert len(closed) == 1


def test_a_reload_that_fails_leaves_the_configs_that_clients_can_set(live, free_port, without_thread):
    one = live()
    with without_thread("klamm-processor-second"):
        assert one.change(FIRST + second(free_port)) == ["nothing changed: can't start new thread"]
    with pytest.raises(ValueError, match="listener.name.second"):
        one.server.dynamic.change({"listener.name.second.num.network.threads": "2"}, False)


def test_a_listener_keeps_its_backlog_if_the_change_fails(live, free_port):
    one = live(FIRST + second(free_port))
    acceptor = one.listener("second").acceptor
    before = [queue.limit for queue in acceptor.accept_queues()]
    third = second(free_port, "backlog = 7\n").replace("second", "third")
    taken = f'[listeners.taken]\nbind = "127.0.0.1:{one.embedded.address("first")[1]}"\n'
    (line,) = one.change(FIRST + third + taken)
    assert line.startswith("nothing changed: ")
    assert [queue.limit for queue in acceptor.accept_queues()] == before
    assert one.change(FIRST + third)[-1] == "done"
    # Only Linux reports the backlog.
    assert [queue.limit for queue in one.listener("third").acceptor.accept_queues()] == [7 for _ in before]


def test_live_keys_that_do_not_fit_the_other_keys_in_use_are_reported(live):
    one = live(FIRST + 'gates = ["connection_quota", "bounded"]\n')
    one.file.write_text(one.file.read_text() + "[listeners.first.bounded]\nlow = 3\nhigh = 5\n")
    plan = EmbeddedServer(file=one.file, plugins=[Plugin()]).plan
    lines = reload(one.server, lambda: plan)
    assert "reload: [listeners.first.bounded] stays as it was: low is above high" in lines
    assert ports(one.connect())


@pytest.mark.interpreted
def test_listeners_stay_if_a_thread_that_must_end_does_not_end(live, free_port):
    one = live(FIRST + "processors = 3\n")
    listener = one.listener("first")

    def refuse(count):
        raise RuntimeError("out of order")

    listener.resize = refuse
    one.change(FIRST + "processors = 2\n" + second(free_port))
    del listener.resize
    assert ports(one.connect("second")) == {free_port}
