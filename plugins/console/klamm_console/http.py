"""`ConsoleServer`: the page and its JSON API over HTTP/1.1.

A browser sends the cookie also for pages of others. So an action needs the header `X-Klamm-Csrf` with a secret that
only the page knows, the cookie goes to the console's own pages alone (SameSite), and no other page may frame it.
"""

from __future__ import annotations

import json
import logging
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from klamm.http import HttpHandler, HttpServer
from klamm_console.api import Answer, Api, ConsoleError, Question

log = logging.getLogger("klamm.console")

COOKIE: Final = "klamm_console"
_MAX_BODY_BYTES: Final = 64 * 1024
_SILENT_S: Final = 30.0
_JSON: Final = "application/json"
_PAGES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
}
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
    """Its constructor binds and may raise OSError."""

    def __init__(self, address: tuple[str, int], api: Api) -> None:
        self.api = api
        folder = files("klamm_console") / "page"
        self.pages = {path: (kind, (folder / name).read_bytes()) for path, (name, kind) in _PAGES.items()}
        super().__init__(address, _Handler, "klamm-console")


class _Handler(HttpHandler):
    server: ConsoleServer
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = _SILENT_S

    def do_GET(self) -> None:
        page = self.server.pages.get(urlsplit(self.path).path)
        if page is not None:
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
            # Of the client's own connection.
            raise
        except Exception:
            log.exception("%s %s failed", self.command, self.path[:200])
            answer = Answer({"error": "the request failed; the log has the reason", "name": ""}, 500)
        if answer.cookie is not None:
            ends = "" if answer.cookie else "; Max-Age=0"
            headers["Set-Cookie"] = f"{COOKIE}={answer.cookie}; Path=/; HttpOnly; SameSite=Strict{ends}"
        self.answer(answer.status, _JSON, json.dumps(answer.content).encode(), headers)

    def _question(self) -> Question:
        parts = urlsplit(self.path)
        words = tuple(unquote(word) for word in parts.path.split("/") if word)
        body = self._body() if self.command == "POST" else {}
        return Question(
            method="GET" if self.command == "HEAD" else self.command,
            words=words,
            query=dict(parse_qsl(parts.query)),
            body=body,
            session=self._cookie(),
            csrf=self.headers.get("X-Klamm-Csrf", ""),
        )

    def _body(self) -> dict[str, Any]:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) > _MAX_BODY_BYTES:
            self.close_connection = True
            raise ConsoleError(413, f"a body has a length, of at most {_MAX_BODY_BYTES} bytes")
        content = self.rfile.read(int(text))
        # Another page can send a form or text without asking the browser first, but not JSON.
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
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        return morsel.value if morsel is not None else ""
