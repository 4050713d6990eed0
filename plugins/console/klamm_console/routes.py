"""`Route`: a request of the console's JSON API. `document_of` describes all requests in an OpenAPI 3.1 document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from klamm import __version__
from klamm.testing import Admin
from klamm_console.live import Stream

_JSON: Final = "application/json"
_ERRORS: Final = {
    "400": "an argument is wrong, or is missing",
    "401": "the login is refused, or the user is not logged in",
    "403": "the user does not have the right; `name` is Kafka's error",
    "404": "the API has no such request",
    "409": "the server refuses; `name` is Kafka's error, if it is one",
    "413": "the body is too large",
    "415": "the body is not JSON",
    "421": "the host name is not one of the console's",
    "429": "too many logins have failed",
    "500": "the request failed; the server's log has the reason",
    "501": "the console supports none of the listener's mechanisms",
    "502": "the listener does not answer",
    "503": "too many users are logged in, or too many streams are open",
}
_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {"type": "string", "description": "The error in words."},
        "name": {"type": "string", "description": "Kafka's name of the error; empty if Kafka has no such error."},
    },
    "required": ["error", "name"],
}


@dataclass(frozen=True, slots=True)
class Question:
    """A request: its method, the parts of its path, its arguments, and the client's secrets. `is_live` is True if the
    page asks without a user's action.
    """

    method: str
    words: tuple[str, ...]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    session: str
    csrf: str
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its JSON content or a stream of events, HTTP's status, and a new cookie. An empty cookie ends the
    session.
    """

    content: Any
    status: int = 200
    cookie: str | None = None
    events: Stream | None = None


Right: TypeAlias = Literal["", "Describe", "Alter"]
"""A right on the cluster."""
ArgumentKind: TypeAlias = Literal["string", "integer", "number", "boolean"]
"""A type of JSON."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument in the query of a GET request, or in the body of a POST request."""

    name: str
    doc: str
    kind: ArgumentKind = "string"
    required: bool = True
    may_be_null: bool = False


Action: TypeAlias = tuple[str, str, Callable[[Admin, Mapping[str, Any]], None], tuple[Argument, ...]]
"""A change over Kafka's protocol: its name, its summary, its function and its arguments."""


@dataclass(frozen=True, slots=True)
class Route:
    """A kind of request below `/api/`. GET reads, and POST acts. If `is_open` is True, it needs no login. `right` is
    the right on the cluster that it needs; a request of Kafka's protocol needs those that Kafka says. If `every_s` is
    not 0, a stream can have its answer every so many seconds.
    """

    method: Literal["GET", "POST"]
    name: str
    summary: str
    call: Callable[[Question], Answer]
    arguments: tuple[Argument, ...] = ()
    answer: Literal["object", "array", "events"] = "object"
    is_open: bool = False
    right: Right = ""
    every_s: float = 0.0


def document_of(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The API of klamm's console",
            "version": __version__,
            "description": "The API that the page uses. `login` sets the cookie, and returns the value of the header"
            " `X-Klamm-Csrf`, which all other requests need too.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"session": [], "page": []}],
        "paths": {f"/api/{each.name}": {each.method.lower(): _described(each)} for each in routes},
        "components": {
            "securitySchemes": {
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "klamm_console_PORT",
                    "description": "PORT is the console's port.",
                },
                "page": {"type": "apiKey", "in": "header", "name": "X-Klamm-Csrf"},
            },
            "responses": {
                status: {"description": text, "content": _content({"$ref": "#/components/schemas/Error"})}
                for status, text in _ERRORS.items()
            },
            "schemas": {"Error": _ERROR},
        },
    }


def _described(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.is_open:
        found["security"] = []
    if route.right:
        found["description"] = f"It needs the right {route.right} on the cluster."
    if route.method == "POST":
        body = {
            "type": "object",
            "properties": {each.name: _schema(each) for each in route.arguments},
            "required": [each.name for each in route.arguments if each.required],
        }
        found["requestBody"] = {"required": True, "content": _content(body)}
    elif route.arguments:
        found["parameters"] = [
            {"name": each.name, "in": "query", "required": each.required, "schema": _schema(each)}
            for each in route.arguments
        ]
    found["responses"] = {
        "200": {"description": "the request has succeeded", "content": _answered(route)},
        **{status: {"$ref": f"#/components/responses/{status}"} for status in _ERRORS},
    }
    return found


def _answered(route: Route) -> dict[str, Any]:
    if route.answer == "events":
        return {"text/event-stream": {"schema": {"type": "string"}}}
    return _content({"type": route.answer})


def _schema(argument: Argument) -> dict[str, Any]:
    kind = [argument.kind, "null"] if argument.may_be_null else argument.kind
    return {"type": kind, "description": argument.doc}


def _content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {_JSON: {"schema": schema}}
