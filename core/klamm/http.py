"""An HTTP server for extensions, with a thread for each connection, and the base class of its handlers."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

from klamm.config.checks import format_host_port

__all__ = ["HttpHandler", "HttpServer", "UnclearBodyError"]

log = logging.getLogger("klamm.http")

_LOOK_EVERY_S: Final = 0.1
_CONNECTIONS: Final = 128
_PLACE_WITHIN_S: Final = 1.0
_NO_HEADERS: Final[Mapping[str, str]] = {}


class UnclearBodyError(ValueError):
    """Raised if a body's length is unclear.

    `status` is the status of the answer: 411 if the request has no usable length, 400 if it has several.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@contextlib.contextmanager
def _named(address: tuple[str, int]) -> Iterator[None]:
    """Add the address to an OSError, because the system's errors do not name it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, format_host_port(*address)) from error


class _Reads(io.RawIOBase):
    """The bytes of a socket. Raises TimeoutError if a request takes longer than `timeout_s` from its first byte on.

    After an error, `failed` is called, and each later read raises OSError: the next bytes may be the rest of a body
    instead of a new request.
    """

    def __init__(
        self, sock: socket.socket, timeout_s: float, now_s: Callable[[], float], failed: Callable[[], None]
    ) -> None:
        self._sock = sock
        self._failed = failed
        self._has_failed = False
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._until_s: float | None = None

    def begin(self) -> None:
        """Start the next request: its time runs from its first byte on."""
        self._until_s = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._has_failed:
            raise OSError("an earlier read of the connection has failed")
        try:
            return self._read(buffer)
        except OSError:
            self._has_failed = True
            self._failed()
            raise

    def _read(self, buffer: Any) -> int:
        left_s = self._timeout_s if self._until_s is None else self._until_s - self._now_s()
        if left_s <= 0:
            raise TimeoutError("the request takes too long")
        self._sock.settimeout(left_s)
        try:
            count = self._sock.recv_into(buffer)
        finally:
            self._sock.settimeout(self._timeout_s)
        if self._until_s is None:
            self._until_s = self._now_s() + self._timeout_s
        return count


class HttpServer(ThreadingHTTPServer):
    """An HTTP server that listens when it is made, and answers from `start` to `stop`; each connection has a thread.

    At most 128 connections are open. A further connection waits until another one ends, and is closed after a second.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[HttpHandler], name: str) -> None:
        """Bind `address`, whose host may be empty. `name` names the thread. Raises OSError with the address."""
        with _named(address):
            family, _, _, _, resolved = socket.getaddrinfo(
                address[0] or None, address[1], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        self.address_family = family
        self._places = threading.BoundedSemaphore(_CONNECTIONS)
        # Protects the set of sockets below. A socket leaves the set before it is closed: otherwise `server_close` might
        # shut down another socket that the system has given the same number.
        self._sockets_lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(_LOOK_EVERY_S,), name=name, daemon=True)
        with _named(address):
            super().__init__((str(resolved[0]), int(resolved[1])), handler)

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port that the server listens on."""
        host, port = self.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://{format_host_port(*self.address)}"

    def start(self) -> None:
        """Start to answer requests, on separate threads."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering new connections. Does nothing if the server has not been started."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()

    def close(self) -> None:
        """Stop answering and listening."""
        self.stop()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(timeout=_PLACE_WITHIN_S):
            self.shutdown_request(request)
            return
        with self._sockets_lock:
            self._sockets.add(request)
        try:
            super().process_request(request, client_address)
        except Exception:
            # The system cannot start a thread for the connection; the caller closes it.
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def close_request(self, request: Any) -> None:
        with self._sockets_lock:
            self._sockets.discard(request)
        super().close_request(request)

    def server_close(self) -> None:
        """Stop listening, and end the connections."""
        super().server_close()
        with self._sockets_lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("peer=%s: answer failed", client_address, exc_info=True)


class HttpHandler(BaseHTTPRequestHandler):
    """A connection of a client. Subclasses have methods `do_GET` and so on, like `BaseHTTPRequestHandler`'s.

    A client is disconnected if it is silent for `timeout` seconds, or if its request takes longer than that to arrive,
    or if it takes longer than that to read an answer.
    """

    timeout: ClassVar[float] = 30.0

    server_version = "klamm"
    sys_version = ""
    # Header and body of an answer are two writes.
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._reads = _Reads(self.connection, self.timeout, time.monotonic, self._end_connection)
        self.rfile = io.BufferedReader(self._reads)

    def _end_connection(self) -> None:
        self.close_connection = True

    def handle_one_request(self) -> None:
        self._reads.begin()
        super().handle_one_request()

    def body_length(self) -> int:
        """Return the length of the request's body in bytes.

        Raises UnclearBodyError. The connection then closes after the answer, because the next bytes may not be a
        request.
        """
        lengths = self.headers.get_all("Content-Length", ["0"])
        text = lengths[0]
        if "Transfer-Encoding" in self.headers or not (text.isascii() and text.isdecimal()):
            self.close_connection = True
            raise UnclearBodyError(411, "the length of the body is not clear")
        if len(lengths) > 1:
            self.close_connection = True
            raise UnclearBodyError(400, "the length of the body is not clear")
        # A number with thousands of digits is cut off: its first digits alone are larger than any limit.
        return int(text.lstrip("0")[:12] or "0")

    def answer(self, status: int, content_type: str, body: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """Send a response. If `close_connection` is set, its headers say that the connection will close."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        log.debug(format, *arguments)
