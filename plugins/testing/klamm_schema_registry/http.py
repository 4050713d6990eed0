"""`RegistryServer`: the REST API over HTTP/1.1. Each connection has a thread; the number of connections is limited."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from klamm.http import HttpHandler, HttpServer, UnclearBodyError
from klamm_schema_registry.api import Api, Text
from klamm_schema_registry.errors import RegistryError
from klamm_schema_registry.formats import strict_json

log = logging.getLogger("klamm.schema_registry")

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_DROPPED_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 1 << 16


class RegistryServer(HttpServer):
    """The HTTP server. It binds the address in its constructor. Raises OSError if it cannot."""

    def __init__(
        self, address: tuple[str, int], api: Api, max_body_bytes: int, answered: Callable[[int, int], None]
    ) -> None:
        self.api = api
        self.answered = answered
        self.max_body_bytes = max_body_bytes
        super().__init__(address, _Handler, "klamm-schema-registry")


class _Handler(HttpHandler):
    server: RegistryServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        began_ns = time.perf_counter_ns()
        try:
            status, answer = 200, self._answer()
        except RegistryError as error:
            status, answer = error.status, {"error_code": error.code, "message": str(error)}
        except (TimeoutError, ConnectionError):
            # The client's connection has failed. Errors of the registry itself are always RegistryErrors.
            raise
        except Exception:
            log.exception("%s %s failed", self.command, self.path[:200])
            status, answer = 500, {"error_code": 500, "message": "the request failed; the log has the reason"}
        self.server.answered(status, (time.perf_counter_ns() - began_ns) // 1000)
        body = (answer if isinstance(answer, Text) else json.dumps(answer, separators=(",", ":"))).encode()
        self.answer(status, CONTENT_TYPE, body)

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self) -> Any:
        body = self._body()
        try:
            parts = urlsplit(self.path)
        except ValueError as error:
            raise RegistryError(400, "Bad Request: the path is not one") from error
        words = [unquote(word) for word in parts.path.split("/") if word]
        return self.server.api.answer(self.command, words, dict(parse_qsl(parts.query, keep_blank_values=True)), body)

    def _body(self) -> dict[str, Any] | None:
        length = self._length()
        if length > self.server.max_body_bytes:
            # A client reads the answer only after it has sent its body, so read and drop it, except if it is far too
            # large.
            self.close_connection = True
            left = min(length, _MAX_DROPPED_BYTES)
            while left > 0 and (dropped := self.rfile.read(min(left, _PIECE_BYTES))):
                left -= len(dropped)
            raise RegistryError(42209, "Register operation failed because schema is too large")
        content = self.rfile.read(length)
        if len(content) < length:
            self.close_connection = True
            raise RegistryError(400, "Bad Request: the body ends early")
        try:
            found = strict_json(content) if content.strip() else None
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, "Bad Request: the body is not JSON") from error
        if not isinstance(found, dict | None):
            raise RegistryError(400, "Bad Request: the body must be a JSON object")
        return found

    def _length(self) -> int:
        try:
            return self.body_length()
        except UnclearBodyError as error:
            text = "HTTP 411 Length Required" if error.status == 411 else "Bad Request: there are several lengths"
            raise RegistryError(error.status, text) from error
