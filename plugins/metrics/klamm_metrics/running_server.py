"""`RunningServer`: HTTP requests of klamm's commands to the extension `prometheus` of a running server."""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import tomli

from klamm.config import format_host_port, host_to_connect, parse_host_port

DEFAULT_BIND: Final = "127.0.0.1:9404"
_TIMEOUT_S: Final = 5.0


class UnreachableError(Exception):
    """Raised if a server cannot be reached, or refuses a request. The message contains the reason."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The address of a server's exporter, e.g. `http://127.0.0.1:9404`, and its token, which may be empty."""

    base: str
    token: str = ""

    @property
    def metrics_url(self) -> str:
        """Return the URL of the server's metrics."""
        return self.base if self.base.count("/") > 2 else f"{self.base}/metrics"

    def read(self, url: str) -> str:
        """Return the text of a page. Raises UnreachableError."""
        return self._ask(urllib.request.Request(url))

    def connections(self) -> dict[str, Any]:
        """Return the server's description of its connections. Raises UnreachableError."""
        request = self._request("/connections")
        try:
            content: dict[str, Any] = json.loads(self._ask(request))
        except ValueError as error:
            raise UnreachableError(f"{request.full_url}: the answer is not JSON: {error}") from error
        return content

    def act(self, action: str, **arguments: str) -> None:
        """Request the action `close` or `move`. Raises UnreachableError."""
        self._ask(self._request(f"/connections/{action}?{urlencode(arguments)}", "POST"))

    def _request(self, path: str, method: str = "GET") -> urllib.request.Request:
        root = "/".join(self.base.split("/")[:3])
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return urllib.request.Request(root + path, method=method, headers=headers)

    def _ask(self, request: urllib.request.Request) -> str:
        if request.type not in ("http", "https"):
            raise UnreachableError(f"{request.full_url} is not an http or https URL")
        # Ignore the environment's proxy: the server is near, and a proxy must not get the token.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as answer:
                text: str = answer.read().decode("utf-8")
                return text
        except urllib.error.HTTPError as error:
            raise UnreachableError(_refusal(error)) from error
        except (OSError, ValueError, HTTPException) as error:
            raise UnreachableError(
                f'{request.full_url}: {_cause(error)}; the server needs [server] extensions = ["prometheus"]'
            ) from error


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `find` reads."""
    parser.add_argument(
        "server",
        metavar="SERVER",
        nargs="?",
        default=DEFAULT_BIND,
        help=f"HOST:PORT or URL of its extension prometheus, or its TOML file; default: {DEFAULT_BIND}",
    )


def find(text: str, token_file: Path | None = None) -> RunningServer:
    """Return the server that the argument SERVER names. Raises UnreachableError for a file that cannot be read."""
    if text.endswith(".toml"):
        file = Path(text)
        table = _table(file)
        try:
            host, port = parse_host_port(str(table.get("bind", DEFAULT_BIND)))
        except ValueError as error:
            raise UnreachableError(f"{file}: prometheus.bind: {error}") from error
        text = format_host_port(host_to_connect(host), port)
        if token_file is None and "token_file" in table:
            # The path is relative to the TOML file, as for the server.
            token_file = file.parent / Path(str(table["token_file"])).expanduser()
    try:
        token = token_file.read_text(encoding="utf-8").strip() if token_file is not None else ""
    except OSError as error:
        raise UnreachableError(f"{token_file}: {error.strerror}") from error
    base = text if "://" in text else f"http://{text}"
    return RunningServer(base.rstrip("/"), token)


def _table(file: Path) -> dict[str, Any]:
    try:
        content = tomli.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreachableError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise UnreachableError(f"{file}: {error}") from error
    table = content.get("prometheus", {})
    return table if isinstance(table, dict) else {}


def _refusal(error: urllib.error.HTTPError) -> str:
    text = error.read().decode("utf-8", "replace").strip()
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.url}: {error.code} {text}"


def _cause(error: OSError | ValueError | HTTPException) -> str:
    """Return the system's text for an error that urllib has wrapped."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return (inner.strerror if isinstance(inner, OSError) else "") or str(inner) or repr(inner)
