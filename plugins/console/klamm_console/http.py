"""`ConsoleServer`: the page and its JSON API over HTTP/1.1.

A browser sends the cookie to every port of the host, also on behalf of other pages. So each request also needs the
header `X-Klamm-Csrf` with a secret, which only the page gets, from the login. No other page may frame this page. A
request under a host name that is not the console's is refused, because another page may point its own name to this
address.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from klamm.http import HttpHandler, HttpServer, UnclearBodyError
from klamm_console.api import Api
from klamm_console.console_errors import ConsoleError
from klamm_console.live import Stream
from klamm_console.routes import Answer, Question

log = logging.getLogger("klamm.console")

COOKIE: Final = "klamm_console"
"""The beginning of the cookie's name. The port follows, because all ports of a host share one set of cookies."""
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MAX_BODY_BYTES: Final = 64 * 1024
_PORT: Final = re.compile(r":[0-9]*\Z")
_JSON: Final = "application/json"
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ConsoleServer(HttpServer):
    """The HTTP server of the console. The constructor binds the address, and raises OSError if it cannot."""

    def __init__(self, address: tuple[str, int], api: Api, hosts: Iterable[str]) -> None:
        self.api = api
        self.hosts = _LOOPBACK_NAMES | {address[0], *(host.lower() for host in hosts)}
        self.pages = {
            "/" if each.name == "index.html" else f"/{each.name}": (
                f"{_KINDS[PurePath(each.name).suffix]}; charset=utf-8",
                each.read_bytes(),
            )
            for each in (files("klamm_console") / "page").iterdir()
        }
        super().__init__(address, _Handler, "klamm-console")
        self.cookie = f"{COOKIE}_{self.address[1]}"


class _Handler(HttpHandler):
    server: ConsoleServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is not None:
            # The connection is closed, because an unread body would be taken for the next request.
            self.close_connection = self.close_connection or "Content-Length" in self.headers
            self.close_connection = self.close_connection or "Transfer-Encoding" in self.headers
            self.answer(200, page[0], page[1], _HEADERS)
            return
        self._answer_api()

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer_api()

    def _answer_api(self) -> None:
        headers = dict(_HEADERS)
        try:
            answer = self.server.api.answer(self._question())
        except ConsoleError as error:
            answer = Answer({"error": str(error), "name": error.name}, error.status)
        except (BrokenPipeError, TimeoutError):
            # The client's own connection has failed.
            raise
        except Exception:
            log.exception("%s %s failed", self.command, self.path[:200])
            answer = Answer({"error": "the request failed; the log has the reason", "name": ""}, 500)
        if answer.cookie is not None:
            ends = "" if answer.cookie else "; Max-Age=0"
            headers["Set-Cookie"] = f"{self.server.cookie}={answer.cookie}; Path=/; HttpOnly; SameSite=Strict{ends}"
        if answer.events is not None:
            self._send_events(answer.events, headers)
            return
        self.answer(answer.status, _JSON, json.dumps(answer.content).encode(), headers)

    def _send_events(self, events: Stream, headers: Mapping[str, str]) -> None:
        # The end of the connection ends the stream. A client that does not read an event for `timeout` is disconnected.
        self.close_connection = True
        # The proxy nginx would else keep events until there are many.
        own = {"Content-Type": "text/event-stream", "Connection": "close", "X-Accel-Buffering": "no"}
        with contextlib.closing(events):
            self.send_response(200)
            for name, value in {**headers, **own}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                for event in events:
                    self.wfile.write(event)

    def _question(self) -> Question:
        body = self._body()
        # Browsers leave out the port of http and of https.
        if _PORT.sub("", self.headers.get("Host", "").lower()) not in self.server.hosts:
            raise ConsoleError(421, "this host name is not the console's: [console] hosts can list it")
        try:
            parts = urlsplit(self.path)
            words = tuple(unquote(word) for word in parts.path.split("/") if word)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
        except ValueError as error:
            raise ConsoleError(400, "the path is invalid") from error
        method = "GET" if self.command == "HEAD" else self.command
        csrf, is_live = self.headers.get("X-Klamm-Csrf", ""), "X-Klamm-Live" in self.headers
        return Question(method, words, query, body, self._cookie(), csrf, is_live)

    def _body(self) -> dict[str, Any]:
        try:
            length = self.body_length()
        except UnclearBodyError as error:
            raise ConsoleError(400, str(error)) from error
        if length > _MAX_BODY_BYTES:
            self.close_connection = True
            raise ConsoleError(413, f"a body has at most {_MAX_BODY_BYTES} bytes")
        content = self.rfile.read(length)
        if self.command != "POST":
            return {}
        # A browser sends another page's form or text without a check, but not its JSON.
        if self.headers.get_content_type() != _JSON:
            raise ConsoleError(415, "a body must be application/json")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ConsoleError(400, "the body is not JSON") from error
        if not isinstance(found, dict):
            raise ConsoleError(400, "the body must be a JSON object")
        return found

    def _cookie(self) -> str:
        # Other programs on this host set cookies that the standard library cannot parse, and it would then refuse all.
        for pair in self.headers.get("Cookie", "").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self.server.cookie:
                return value
        return ""
