"""`RegistryServer`: the REST API over HTTP/1.1, each connection on a thread, for a limited number of connections."""

from __future__ import annotations

import json
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from klamm.config import format_host_port
from klamm_schema_registry.api import Api, Text
from klamm_schema_registry.errors import RegistryError

log = logging.getLogger("klamm.schema_registry")

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_CONNECTIONS: Final = 128
_SILENT_S: Final = 30.0
_MAX_DROPPED_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 1 << 16
_PLACE_WITHIN_S: Final = 1.0


class RegistryServer(ThreadingHTTPServer):
    """Its constructor binds and may raise OSError."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], api: Api, max_body_bytes: int) -> None:
        family, _, _, _, resolved = socket.getaddrinfo(
            address[0] or None, address[1], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.address_family = family
        self.api = api
        self.max_body_bytes = max_body_bytes
        self._places = threading.BoundedSemaphore(_CONNECTIONS)
        try:
            super().__init__((str(resolved[0]), int(resolved[1])), _Handler)
        except OSError as error:
            # The system's error does not name the refused address.
            raise OSError(error.errno, error.strerror, format_host_port(*address)) from error

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(timeout=_PLACE_WITHIN_S):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("peer=%s: answer failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer
    protocol_version = "HTTP/1.1"
    server_version = "klamm"
    sys_version = ""
    timeout: ClassVar[float] = _SILENT_S
    # Header and body of an answer are two writes.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        try:
            status, answer = 200, self._answer(method)
        except RegistryError as error:
            status, answer = error.status, {"error_code": error.code, "message": str(error)}
        except Exception:
            log.exception("%s %s failed", method, self.path[:200])
            status, answer = 500, {"error_code": 500, "message": "the request failed; the log has the reason"}
        body = (answer if isinstance(answer, Text) else json.dumps(answer, separators=(",", ":"))).encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, method: str) -> Any:
        body = self._body()
        parts = urlsplit(self.path)
        words = [unquote(word) for word in parts.path.split("/") if word]
        return self.server.api.answer(method, words, dict(parse_qsl(parts.query, keep_blank_values=True)), body)

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            self.close_connection = True
            raise RegistryError(411, "HTTP 411 Length Required")
        if int(length[:12]) > self.server.max_body_bytes:
            # A client reads the answer only once its body has been taken, unless that is absurdly large.
            self.close_connection = True
            left = min(int(length[:12]), _MAX_DROPPED_BYTES)
            while left > 0 and (dropped := self.rfile.read(min(left, _PIECE_BYTES))):
                left -= len(dropped)
            raise RegistryError(42209, "Register operation failed because schema is too large")
        content = self.rfile.read(int(length))
        try:
            found = json.loads(content) if content.strip() else {}
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, "Bad Request: the body is not JSON") from error
        if not isinstance(found, dict):
            raise RegistryError(400, "Bad Request: the body must be a JSON object")
        return found

    def log_message(self, format: str, *arguments: Any) -> None:
        log.debug(format, *arguments)
