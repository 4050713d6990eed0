"""`ControlServer`: an HTTP/1.1 server that takes and returns JSON, for clients that send the token.

It calls the actions, each on the thread of its connection.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from klamm import KafkaError
from klamm.http import HttpHandler, HttpServer, UnclearBodyError
from klamm_control.routes import operations_of

log = logging.getLogger("klamm.control")

_MAX_BODY_BYTES: Final = 16 << 20
_SILENT_S: Final = 60.0


class ControlServer(HttpServer):
    """The server. It binds the address in its constructor. Raises OSError if it cannot.

    Each connection has its own thread, because tests open few connections.
    """

    def __init__(self, address: tuple[str, int], token: str, parts: Iterable[object]) -> None:
        """Create the server. `parts` are objects with methods that `route` marks."""
        self.token = token
        self.operations = [(part, each) for part in parts for each in operations_of(type(part))]
        super().__init__(address, _Handler, "klamm-control")


class _Handler(HttpHandler):
    server: ControlServer
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = _SILENT_S

    def do_GET(self) -> None:
        status, answer = self._answer()
        # A body that is too large was not read, so the connection cannot be used again.
        self.close_connection = self.close_connection or status == 413
        self.answer(status, "application/json", json.dumps(answer).encode() + b"\n")

    do_POST = do_DELETE = do_GET

    def _answer(self) -> tuple[int, Any]:
        try:
            length = self.body_length()
        except UnclearBodyError as error:
            return 400, {"error": str(error)}
        if length > _MAX_BODY_BYTES:
            return 413, {"error": f"a body may have at most {_MAX_BODY_BYTES} bytes"}
        # An exception of this read ends the connection, which is broken anyway.
        body = self.rfile.read(length)
        try:
            return self._answer_to(body)
        except Exception:
            log.exception("%s %s failed", self.command, self.path[:200])
            return 500, {"error": "the request failed; the log has the reason"}

    def _answer_to(self, body: bytes) -> tuple[int, Any]:
        shown = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(shown, f"Bearer {self.server.token}".encode()):
            return 401, {"error": "the header Authorization must be: Bearer TOKEN"}
        parts = urlsplit(self.path)
        words = tuple(unquote(word) for word in parts.path.split("/") if word)
        try:
            return self._act(self.command, words, dict(parse_qsl(parts.query)), _object(body))
        except (ValueError, TypeError) as error:
            return 400, {"error": str(error)}
        except LookupError as error:
            return 404, {"error": str(error.args[0]) if error.args else "not found"}
        except TimeoutError as error:
            return 408, {"error": str(error)}
        except KafkaError as error:
            return 409, {"error": str(error), "code": int(error.error_code), "name": error.error_code.name}

    def _act(
        self, method: str, words: tuple[str, ...], query: Mapping[str, str], body: Mapping[str, Any]
    ) -> tuple[int, Any]:
        known = [(part, each) for part, each in self.server.operations if each.fits(words)]
        for part, each in known:
            if each.method == method:
                return 200, each.function(part, **each.arguments(words, query, body))
        if known:
            methods = ", ".join(each.method for _, each in known)
            return 405, {"error": f"{method} is not allowed for this path, which supports {methods}"}
        raise LookupError(f"there is no /{'/'.join(words)}")


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise ValueError("the body must be a JSON object") from error
    if not isinstance(found, dict):
        raise ValueError("the body must be a JSON object")
    return found
