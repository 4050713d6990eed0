"""Tests of pipes: they pass bytes between sockets in order, in any portions, and no pipe stays open."""

import os
import socket
import sys

import pytest

from klamm.network.pipes import MAX_IDLE, PIPE_BYTES, Pipe, Pipes
from klamm.network.send import NetworkSend
from klamm.wire.chunks import close_chunks
from klamm_plaintext.transport import PlaintextTransportLayer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="splice is Linux's")


@pytest.fixture
def ends():
    """Return a node's socket and its peer, and a client's socket and its peer. Those of the gateway do not block."""
    node, node_peer = socket.socketpair()
    client, client_peer = socket.socketpair()
    for one in (node_peer, client_peer):
        one.setblocking(False)
    yield node, node_peer, client, client_peer
    for one in (node, node_peer, client, client_peer):
        one.close()


class Opened:
    """Opens at most `most` pipes in all."""

    def __init__(self, most=100):
        self.left = most
        self.pipes = []

    def __call__(self):
        if not self.left:
            raise OSError("no more")
        self.left -= 1
        self.pipes.append(Pipe())
        return self.pipes[-1]


def test_bytes_pass_in_order_through_one_pipe_to_a_slow_client(ends):
    node, node_peer, client, client_peer = ends
    opened = Opened()
    pipes, layer = Pipes(opened), PlaintextTransportLayer(client_peer)
    data, received = os.urandom(100_000), b""
    client_peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
    waited = 0
    for begin in range(0, len(data), 20_000):
        node.sendall(data[begin : begin + 20_000])
        send = NetworkSend([b"<", pipes.fill(node_peer.fileno(), 20_000), b">"], None)
        whole = send.write_to(layer)
        while not whole:
            waited += 1
            received += client.recv(5_000)
            whole = send.write_to(layer)
        assert send.size_bytes == 20_002
        expected = b"".join(b"<%b>" % data[at : at + 20_000] for at in range(0, begin + 1, 20_000))
        while len(received) < len(expected):
            received += client.recv(5_000)
        assert received == expected
    assert waited
    assert len(opened.pipes) == 1, "an empty pipe is used again"


def test_an_empty_socket_blocks_and_a_closed_one_is_empty(ends):
    node, node_peer, _, _ = ends
    opened = Opened()
    pipes = Pipes(opened)
    with pytest.raises(BlockingIOError):
        pipes.fill(node_peer.fileno(), 10)
    node.sendall(b"abcdef")
    part = pipes.fill(node_peer.fileno(), 4)
    assert (part.size_bytes, part.read(0, 4)) == (4, b"abcd")
    node.close()
    rest = pipes.fill(node_peer.fileno(), 10)
    assert (rest.size_bytes, rest.read(0, 10)) == (2, b"ef")
    assert pipes.fill(node_peer.fileno(), 10) == b""


def test_without_a_pipe_bytes_are_copied(ends):
    node, node_peer, _, _ = ends
    node.sendall(b"abcdef")
    assert Pipes(Opened(0)).fill(node_peer.fileno(), 4) == b"abcd"


def test_a_pipe_whose_bytes_are_not_sent_is_closed_and_not_used_again(ends):
    node, node_peer, _, _ = ends
    opened = Opened()
    pipes = Pipes(opened)
    node.sendall(b"abcdef")
    part = pipes.fill(node_peer.fileno(), 4)
    reader = opened.pipes.pop().reader
    close_chunks([part])
    del part
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reader)
    assert pipes.fill(node_peer.fileno(), 4).read(0, 10) == b"ef"


def test_few_empty_pipes_are_kept():
    pipes = Pipes()
    made = [Pipe() for _ in range(MAX_IDLE + 1)]
    last = made[-1].reader
    while made:
        pipes.give_back(made.pop(0))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(last)


def test_a_pipe_holds_as_many_bytes_as_it_reports():
    pipe = Pipe()
    assert os.write(pipe.writer, bytes(2 * PIPE_BYTES)) == PIPE_BYTES
