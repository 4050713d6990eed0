"""`ControlServer`: JSON over HTTP/1.1, for clients that send the token."""

from __future__ import annotations

import hmac
import inspect
import json
import logging
import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from klamm import KafkaError
from klamm.config import did_you_mean, format_host_port
from klamm_control.actions import Actions
from klamm_control.node_actions import NodeActions

log = logging.getLogger("klamm.control")

_MAX_BODY_BYTES: Final = 16 << 20
_SILENT_S: Final = 60.0

Route = tuple[str, tuple[str, ...], Callable[..., Any]]


class ControlServer(ThreadingHTTPServer):
    """Its constructor binds and may raise OSError. Each connection has its own thread; tests open few."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], token: str, actions: Actions, nodes: NodeActions) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.token = token
        self.routes: list[Route] = [
            ("GET", (), actions.about),
            ("GET", ("topics",), actions.topics),
            ("POST", ("topics",), actions.create_topic),
            ("DELETE", ("topics", "*"), actions.delete_topic),
            ("POST", ("topics", "*", "records"), actions.produce),
            ("GET", ("topics", "*", "records"), actions.consume),
            ("GET", ("faults",), actions.faults),
            ("POST", ("faults",), actions.add_fault),
            ("DELETE", ("faults",), actions.clear_faults),
            ("GET", ("faults", "*"), actions.fault),
            ("DELETE", ("faults", "*"), actions.remove_fault),
            ("GET", ("nodes",), nodes.nodes),
            ("POST", ("nodes", "*"), nodes.set_node),
            ("GET", ("leaders", "*"), nodes.leaders),
            ("POST", ("leaders", "*"), nodes.move_leader),
            ("GET", ("coordinators", "*"), nodes.coordinator),
            ("POST", ("coordinators", "*"), nodes.move_coordinator),
            ("GET", ("requests",), actions.requests),
            ("DELETE", ("requests",), actions.forget_requests),
            ("POST", ("time",), actions.advance),
            ("POST", ("reset",), actions.reset),
        ]
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            # The system does not say which address it refuses.
            raise OSError(error.errno, error.strerror, format_host_port(*address)) from error


class _Handler(BaseHTTPRequestHandler):
    server: ControlServer
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = _SILENT_S

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        try:
            status, answer = self._answer(method)
        except Exception:
            log.exception("%s %s failed", method, self.path[:200])
            status, answer = 500, {"error": "the request failed; the log has the reason"}
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 413:
            # The body was not read, so the connection cannot be reused.
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, method: str) -> tuple[int, Any]:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            return 413, {"error": f"a body has at most {_MAX_BODY_BYTES} bytes"}
        body = self.rfile.read(int(length))
        shown = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(shown, f"Bearer {self.server.token}".encode()):
            return 401, {"error": "the header Authorization must be: Bearer TOKEN"}
        parts = urlsplit(self.path)
        words = tuple(unquote(word) for word in parts.path.split("/") if word)
        options: dict[str, Any] = dict(parse_qsl(parts.query))
        try:
            options |= _object(body)
            return self._act(method, words, options)
        except (ValueError, TypeError) as error:
            return 400, {"error": str(error)}
        except LookupError as error:
            return 404, {"error": str(error.args[0]) if error.args else "not found"}
        except TimeoutError as error:
            return 408, {"error": str(error)}
        except KafkaError as error:
            return 409, {"error": str(error), "code": int(error.error_code)}

    def _act(self, method: str, words: tuple[str, ...], options: Mapping[str, Any]) -> tuple[int, Any]:
        known = [(verb, act) for verb, pattern, act in self.server.routes if _fits(pattern, words)]
        for verb, act in known:
            if verb == method:
                names = words[1:2]
                _check_options(act, len(names), options)
                return 200, act(*names, **options)
        if known:
            return 405, {
                "error": f"{method} is not allowed for this path, which has {', '.join(verb for verb, _ in known)}"
            }
        raise LookupError(f"there is no /{'/'.join(words)}")

    def log_message(self, format: str, *arguments: Any) -> None:
        log.debug(format, *arguments)


def _fits(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return len(pattern) == len(words) and all(want in ("*", word) for want, word in zip(pattern, words, strict=True))


def _check_options(act: Callable[..., Any], names: int, options: Mapping[str, Any]) -> None:
    """Raises ValueError for an option that the path does not have, and for one that it needs."""
    parameters = list(inspect.signature(act).parameters.values())[names:]
    known = {one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD}
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None and len(known) == len(parameters):
        raise ValueError(f'there is no "{unknown}" here{did_you_mean(unknown, known)}')
    for one in parameters:
        if one.name in known and one.default is inspect.Parameter.empty and one.name not in options:
            raise ValueError(f'"{one.name}" is needed')


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise ValueError("the body must be a JSON object") from error
    if not isinstance(found, dict):
        raise ValueError("the body must be a JSON object")
    return found
