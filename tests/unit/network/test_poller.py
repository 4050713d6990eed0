"""Tests of all kinds of pollers, and of several listening sockets that each of them watches."""

import contextlib
import dataclasses
import os
import selectors
import socket
import struct
import threading
import time

import pytest

from klamm.network import listening_sockets, poller
from klamm.network.listening_sockets import ListeningSockets
from klamm.network.poller import ERROR, HANG_UP, READ, WRITE, SelectorsPoller, Waker, make_poller
from klamm.runtime import PLATFORM

KINDS = {
    "epoll": selectors.EpollSelector,
    "poll": selectors.PollSelector,
    "select": selectors.SelectSelector,
}


@pytest.fixture(params=KINDS)
def platform(request, monkeypatch):
    """Return the platform whose pollers are of one kind."""
    with_epoll = PLATFORM.epoll if request.param == "epoll" else None
    changed = dataclasses.replace(PLATFORM, epoll=with_epoll, selector=KINDS[request.param])
    for module in (poller, listening_sockets):
        monkeypatch.setattr(module, "PLATFORM", changed)
    return changed


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted = server.accept()[0]
    with client, accepted:
        yield client, accepted


def polled(made, *, within_s=5.0):
    """Return the first events, or none after the time limit."""
    end_s = time.monotonic() + within_s
    while not (events := made.poll(0.05)) and time.monotonic() < end_s:
        pass
    return events


def test_a_poller_reports_the_events_of_the_mask(platform, pair):
    client, accepted = pair
    with contextlib.closing(make_poller()) as made:
        made.register(accepted.fileno(), READ | WRITE)
        assert polled(made) == [(accepted.fileno(), WRITE)]
        made.modify(accepted.fileno(), READ)
        assert made.poll(0) == []
        client.sendall(b"x")
        assert polled(made) == [(accepted.fileno(), READ)]
        made.modify(accepted.fileno(), 0)
        assert made.poll(0) == []
        made.modify(accepted.fileno(), READ)
        assert polled(made) == [(accepted.fileno(), READ)]
        made.unregister(accepted.fileno())
        assert made.poll(0) == []


def test_the_end_of_a_connection_is_reported_even_with_an_empty_mask(platform, pair):
    client, accepted = pair
    with contextlib.closing(make_poller()) as made, contextlib.closing(Waker("selectors")) as waker:
        made.register(waker.descriptor, READ)
        made.register(accepted.fileno(), 0)
        client.sendall(b"x")
        assert polled(made, within_s=0.3) == []
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        # A thread with other work also polls.
        waker.wake()
        seen = set()
        end_s = time.monotonic() + 5
        while len(seen) < 2 and time.monotonic() < end_s:
            seen |= {descriptor for descriptor, mask in made.poll(0.05) if mask & (READ | ERROR | HANG_UP)}
        assert seen == {waker.descriptor, accepted.fileno()}


def test_more_sockets_than_the_system_allows_are_refused(monkeypatch):
    monkeypatch.setattr(poller, "PLATFORM", dataclasses.replace(PLATFORM, max_watched=2))
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.closing(SelectorsPoller()) as made:
        made.register(ours.fileno(), READ)
        made.register(theirs.fileno(), 0)
        with pytest.raises(OSError, match="waits for 2 sockets at most"):
            made.register(0, READ)
        made.unregister(ours.fileno())
        made.register(ours.fileno(), READ)


def test_several_listening_sockets_are_watched_as_one(platform):
    before = threading.active_count()
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    with contextlib.closing(ListeningSockets(sockets)) as together, contextlib.closing(make_poller()) as made:
        together.setblocking(False)
        assert together.getsockname() == sockets[0].getsockname()
        made.register(together.fileno(), READ)
        assert made.poll(0) == []
        for turn in range(30):
            wanted = [sockets[(turn + more) % 3] for more in range(1 + turn % 3)]
            with contextlib.ExitStack() as clients:
                names = {
                    clients.enter_context(socket.create_connection(each.getsockname())).getsockname() for each in wanted
                }
                while names:
                    assert polled(made), names
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            accepted, name = together.accept()
                            accepted.close()
                            names.remove(name)
        assert polled(made, within_s=0.2) == [], "no connection waits"
    assert threading.active_count() == before
    assert all(each.fileno() == -1 for each in sockets)


def test_a_waker_wakes_once_for_many_calls(platform):
    with contextlib.closing(Waker()) as waker, contextlib.closing(make_poller()) as made:
        made.register(waker.descriptor, READ)
        for _ in range(3):
            waker.wake()
        assert polled(made) == [(waker.descriptor, READ)]
        waker.drain()
        assert made.poll(0) == []


@pytest.mark.parametrize("kind", ["auto", "selectors"])
def test_a_closed_waker_does_not_write_to_a_reused_descriptor(kind):
    waker = Waker(kind)
    read_end, write_end = os.pipe()
    number = waker.descriptor
    waker.close()
    os.dup2(write_end, number)
    waker.wake()
    waker.drain()
    waker.close()
    os.close(number)
    os.close(write_end)
    with open(read_end, "rb") as written:
        assert written.read() == b""


@pytest.mark.skipif(not PLATFORM.has_eventfd, reason="this system has no eventfd")
def test_a_waker_is_not_closed_while_another_thread_wakes_it(monkeypatch):
    waker, write, closers = Waker(), os.eventfd_write, []

    def write_while_another_thread_closes(descriptor, count):
        closers.append(threading.Thread(target=waker.close))
        closers[0].start()
        closers[0].join(0.1)
        assert closers[0].is_alive()
        write(descriptor, count)

    monkeypatch.setattr(os, "eventfd_write", write_while_another_thread_closes)
    waker.wake()
    closers[0].join()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(waker.descriptor)
