"""The HTTP server of the extension `prometheus`. Clients that send or read slowly do not block other clients.

At most `CONNECTIONS` connections are open. Each has a thread, and one deadline for request and answer. If one more
arrives, the server closes the oldest connection of the address with the most connections. So a client that opens many
connections loses its own, and a client that sends its request at once gets its answer.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from klamm.http import HttpHandler, HttpServer
from klamm.runtime import Clock

log = logging.getLogger("klamm.prometheus")

CONNECTIONS: Final = 16
DEADLINE_S: Final = 10.0
_MAX_HEAD_BYTES: Final = 16 * 1024
_PLACE_WITHIN_S: Final = 2.0
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str = _TEXT


class Request(NamedTuple):
    """The part of an HTTP request that pages use. `token` comes from the header `Authorization: Bearer TOKEN`."""

    accept: str
    token: str
    query: Mapping[str, str]


PageSource = Callable[[Request], Page]
"""A function that creates a page. It raises BadRequestError for a wrong query."""


class BadRequestError(Exception):
    """Raised for a wrong query. The message has the reason."""


def render(registry: CollectorRegistry, accept: str) -> Page:
    """Return all metrics in the format that the header `Accept` requests."""
    encode, content_type = choose_encoder(accept)
    return Page(200, encode(registry), content_type)


class _Connection(NamedTuple):
    sock: socket.socket
    host: str
    deadline_ns: int


class PageServer(HttpServer):
    """The HTTP server. It binds the address in its constructor, and answers from `start` to `close`.

    Raises OSError if it cannot bind the address.
    """

    def __init__(
        self,
        address: tuple[str, int],
        pages: Mapping[str, PageSource],
        clock: Clock,
        actions: Mapping[str, PageSource] | None = None,
    ) -> None:
        """Create the server: `pages` answer GET, `actions` answer POST. Both read their arguments from the query."""
        self.pages = pages
        self.actions = actions or {}
        self._clock = clock
        self._lock = threading.Lock()
        # The open connections, the oldest first. `_abort` removes a connection from it; its thread ends soon
        # afterwards.
        self._open: dict[socket.socket, _Connection] = {}
        self._thread_places = threading.BoundedSemaphore(2 * CONNECTIONS)
        super().__init__(address, _Handler, "klamm-prometheus")

    def service_actions(self) -> None:
        """Close connections whose deadline has passed. The server's loop calls it after each connection and every 100
        ms.
        """
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            for connection in list(self._open.values()):
                if connection.deadline_ns > now_ns:
                    break
                self._abort(connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        deadline_ns = self._clock.monotonic_ns() + int(DEADLINE_S * 1e9)
        with self._lock:
            if len(self._open) >= CONNECTIONS:
                self._abort(self._connection_to_close())
        # The thread of an aborted connection ends soon, but not at once: wait for its place.
        if not self._thread_places.acquire(timeout=_PLACE_WITHIN_S):
            self.shutdown_request(request)
            return
        with self._lock:
            self._open[request] = _Connection(request, str(client_address[0]), deadline_ns)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def _connection_to_close(self) -> _Connection:
        """Return the oldest connection of the address with the most connections."""
        counts = Counter(connection.host for connection in self._open.values())
        return max(self._open.values(), key=lambda connection: counts[connection.host])

    def _abort(self, connection: _Connection) -> None:
        del self._open[connection.sock]
        try:
            # Wakes the thread that reads or writes the connection.
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("peer=%s: closed already", connection.host)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._open.pop(request, None)
        self._thread_places.release()


class _Handler(HttpHandler):
    """The handler of one connection, which has one request and one answer."""

    server: PageServer
    timeout = DEADLINE_S

    def handle(self) -> None:
        head = self._read_head()
        if head is None:
            return
        self.rfile = io.BufferedReader(io.BytesIO(head))
        self.close_connection = True
        self.handle_one_request()

    def _read_head(self) -> bytes | None:
        """Return the request without its body; None if it does not arrive or is too large."""
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            data = self.connection.recv(_MAX_HEAD_BYTES + 1 - len(head))
            head += data
            if not data or len(head) > _MAX_HEAD_BYTES:
                return None
        return head

    def do_GET(self) -> None:
        self._answer_from(self.server.pages)

    def do_POST(self) -> None:
        self._answer_from(self.server.actions)

    def _answer_from(self, sources: Mapping[str, PageSource]) -> None:
        path, _, query = self.path.partition("?")
        source = sources.get(path)
        if source is None:
            known = ", ".join(sources)
            self.answer(404, _TEXT, f"the pages are {known}\n".encode())
            return
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            page = source(Request(self.headers.get("Accept", ""), token, dict(parse_qsl(query))))
        except BadRequestError as error:
            page = Page(400, f"{error}\n".encode())
        except Exception:
            log.exception("page %s cannot be made", self.path[:256])
            page = Page(500, b"this page cannot be made; the log says why\n")
        self.answer(page.status, page.content_type, page.body)

    do_HEAD = do_GET
