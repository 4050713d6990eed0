"""Tests of the system's figures about connections that are not accepted yet."""

import socket
from contextlib import ExitStack

import pytest

from klamm.network.listening_sockets import AcceptQueue, ListenOverflows, accept_queue, listen_overflows

NETSTAT = """\
TcpExt: SyncookiesSent ListenOverflows ListenDrops
TcpExt: 1 27 31
IpExt: InNoRoutes InTruncatedPkts
IpExt: 0 0
"""


def test_the_queue_of_a_listening_socket_has_its_length_and_its_limit():
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(7)
        assert accept_queue(listening) == AcceptQueue(0, 7)
        for _ in range(3):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        assert accept_queue(listening) == AcceptQueue(3, 7)


def test_a_closed_socket_and_a_unix_socket_have_no_queue(tmp_path):
    closed = socket.socket()
    closed.close()
    assert accept_queue(closed) is None
    with socket.socket(socket.AF_UNIX) as unix:
        assert accept_queue(unix) is None


def test_overflows_are_counted_from_the_start_of_the_server(tmp_path):
    """A worker that replaces another must not add the host's count once more."""
    file = tmp_path / "netstat"
    file.write_text(NETSTAT)
    overflows = ListenOverflows(file)
    assert overflows.count() == 0
    file.write_text(NETSTAT.replace("27", "30"))
    assert overflows.count() == 3
    assert ListenOverflows(tmp_path / "missing").count() is None


def test_the_count_of_overflows_is_found_by_its_name(tmp_path):
    file = tmp_path / "netstat"
    file.write_text(NETSTAT)
    assert listen_overflows(file) == 27


@pytest.mark.parametrize("text", ["", "IpExt: InNoRoutes\nIpExt: 0\n"])
def test_a_system_without_the_count_reports_no_overflows(tmp_path, text):
    file = tmp_path / "netstat"
    file.write_text(text)
    assert listen_overflows(file) is None
    assert listen_overflows(tmp_path / "not there") is None
