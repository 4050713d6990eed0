"""The page /connections about open connections, and the actions /connections/close and /connections/move.

The HTTP server of the extension `prometheus` calls them, with a thread for each request.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from klamm import ServerServices
from klamm_metrics.http import BadRequestError, Page, Request

_LOOK_WITHIN_S: Final = 2.0
_JSON: Final = "application/json"


class ConnectionPages:
    """The pages about connections.

    Without a configured token, clients can view connections, like metrics, but not close or move them. With a token,
    clients need it for each of these pages.
    """

    def __init__(self, server: ServerServices, token_file: Path | None) -> None:
        self._server = server
        self.use(token_file)
        self.pages = {"/connections": self._look}
        self.actions = {"/connections/close": self._close, "/connections/move": self._move}

    def reload(self) -> None:
        """Read the token. If it raises OSError, the old token stays."""
        self.use(self._token_file)

    def use(self, file: Path | None) -> None:
        """Read the token from another file. If it raises OSError, the old token stays."""
        token: bytes | None = file.read_text(encoding="utf-8").strip().encode() if file is not None else None
        if token == b"":
            raise OSError(f"the token file {file} is empty")
        self._token_file, self._token = file, token

    def _look(self, request: Request) -> Page:
        if self._token is not None and not self._has_token(request):
            return _refused()
        try:
            return _json(200, self._connections.look(_LOOK_WITHIN_S))
        except TimeoutError as error:
            return _json(503, {"error": str(error)})

    def _close(self, request: Request) -> Page:
        return self._act(request, lambda: self._connections.close(_argument(request, "id")))

    def _move(self, request: Request) -> Page:
        processor = _argument(request, "processor")
        if not processor.isdecimal():
            raise BadRequestError("processor is not a number")
        return self._act(request, lambda: self._connections.move(_argument(request, "id"), int(processor)))

    def _act(self, request: Request, action: Callable[[], str]) -> Page:
        if self._token is None:
            return _json(403, {"error": "the server needs [prometheus] token_file to close or move connections"})
        if not self._has_token(request):
            return _refused()
        problem = action()
        return _json(409, {"error": problem}) if problem else _json(200, {})

    @property
    def _connections(self) -> Any:
        if self._server.connections is None:
            raise BadRequestError("this server does not show its connections")
        return self._server.connections

    def _has_token(self, request: Request) -> bool:
        return self._token is not None and hmac.compare_digest(request.token.encode(), self._token)


def _argument(request: Request, name: str) -> str:
    value = request.query.get(name, "")
    if not value:
        raise BadRequestError(f"the query needs {name}")
    return value


def _json(status: int, content: Any) -> Page:
    return Page(status, json.dumps(content).encode() + b"\n", _JSON)


def _refused() -> Page:
    return _json(401, {"error": "the token is missing or wrong: [prometheus] token_file has it"})
