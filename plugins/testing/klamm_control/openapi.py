"""`Description`: the HTTP API as an OpenAPI 3.1 document, generated from the methods that answer its requests.

The extension `control` makes it for `GET /openapi.json`, and `tools.generate_control` for the documentation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from klamm import __version__
from klamm_control.routes import Operation, Parameter, operations_of, route
from klamm_control.schemas import Components, Schema, types_of

_JSON: Final = "application/json"
ERRORS: Final = {
    "400": "an argument is wrong",
    "401": "the token is missing or wrong",
    "404": "the named thing does not exist, or the server lacks the part for it",
    "405": "the path has no such method",
    "408": "the time is over",
    "409": "the broker refuses; `code` and `name` are Kafka's error",
    "413": "the body is too large",
    "500": "the request failed; the server's log has the reason",
}
"""The meaning of each status except 200, as the OpenAPI document gives it."""

_ERROR: Final[Schema] = {
    "type": "object",
    "description": "The answer to a request that fails.",
    "properties": {
        "error": {"type": "string", "description": "The error in words."},
        "code": {"type": "integer", "description": "Kafka's error code, with status 409."},
        "name": {"type": "string", "description": "Kafka's name of the error, with status 409."},
    },
    "required": ["error"],
}
_INFO: Final = {
    "title": "klamm's control API",
    "version": __version__,
    "description": "Controls a Kafka broker for tests. `klamm serve --ephemeral --ready-file FILE` writes the URL and"
    " the token to the file.",
    "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
}


class Description:
    """The actions for the OpenAPI description of the API. The description includes these actions themselves."""

    def __init__(self, kinds: Sequence[type]) -> None:
        self._kinds = kinds

    @route("GET", "/openapi.json")
    def openapi(self) -> dict[str, Any]:
        """Return the description of this API in OpenAPI 3.1."""
        return self.document

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        return document_of(self.operations())

    def operations(self) -> list[Operation]:
        """Return the operations of the API, in order."""
        return [each for kind in (*self._kinds, Description) for each in operations_of(kind)]


def document_of(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of some operations."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: Components = {"Error": _ERROR}
    used: set[str] = set()
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each)
        schemas |= each.signature.components
        used.update(errors_of(each))
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                status: {"description": text, "content": _content({"$ref": "#/components/schemas/Error"})}
                for status, text in ERRORS.items()
                if status in used
            },
            "schemas": dict(sorted(schemas.items())),
        },
    }


def errors_of(operation: Operation) -> Iterator[str]:
    """Yield the statuses of errors that an operation may answer with."""
    takes = {each.name for each in (*operation.in_path, *operation.options)}
    for status in ERRORS:
        # Only a method that a path lacks returns 405, and no operation describes that.
        if status == "405" or (status == "400" and not takes) or (status == "408" and "timeout_s" not in takes):
            continue
        yield status


def _described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary}
    if operation.description:
        found["description"] = operation.description
    parameters = [_parameter(each, "path") for each in operation.in_path]
    if operation.method == "POST":
        if operation.options:
            found["requestBody"] = {
                "required": any(each.is_required for each in operation.options),
                "content": _content(operation.signature.body or _body(operation.options)),
            }
    else:
        parameters += [_parameter(each, "query") for each in operation.options]
    if parameters:
        found["parameters"] = parameters
    found["responses"] = {
        "200": {"description": "the request has succeeded", "content": _content(operation.signature.answer)},
        **{status: {"$ref": f"#/components/responses/{status}"} for status in errors_of(operation)},
    }
    return found


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    schema = _with_default(parameter)
    kinds = [each for each in types_of(schema) if each != "null"]
    if kinds:
        # A query cannot contain null: a client leaves the parameter out.
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    described = {"name": parameter.name, "in": place, "required": parameter.is_required}
    if "description" in schema:
        described["description"] = schema.pop("description")
    return {**described, "schema": schema}


def _body(options: Sequence[Parameter]) -> Schema:
    schema: Schema = {"type": "object", "properties": {each.name: _with_default(each) for each in options}}
    needed = [each.name for each in options if each.is_required]
    if needed:
        schema["required"] = needed
    return {**schema, "additionalProperties": False}


def _with_default(parameter: Parameter) -> Schema:
    default = {} if parameter.default is None else {"default": parameter.default}
    return {**parameter.schema, **default}


def _content(schema: Schema) -> dict[str, Any]:
    return {_JSON: {"schema": schema}}
