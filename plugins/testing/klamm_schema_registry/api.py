"""`Api`: the paths of the REST API, and the answers to their requests. The threads of `RegistryServer` call it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from klamm_schema_registry import bodies, errors
from klamm_schema_registry.errors import RegistryError
from klamm_schema_registry.formats import AVRO, PROTOBUF, TYPES
from klamm_schema_registry.registry import LATEST, Registry, Submitted
from klamm_schema_registry.state import Content, Version, contract_of, described, references_of

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}\Z")
T = TypeVar("T")


class Request(NamedTuple):
    """A request. `words` are the parts of its path that stand for `{}` in the path of a route."""

    words: Sequence[str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    def flag(self, name: str) -> bool:
        """Return the value of a parameter that is `true` or `false`."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Return the value of a parameter that is a number."""
        text = self.query.get(name, "")
        if text and not _NUMBER.match(text):
            raise RegistryError(404, "HTTP 404 Not Found")
        return int(text) if text else default

    def page(self, found: Sequence[T]) -> list[T]:
        """Return the part that `offset` and `limit` select. A limit of 0 or less means no limit."""
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", 0)
        return list(found[offset:] if limit <= 0 else found[offset : offset + limit])

    @property
    def subject(self) -> str:
        return self.words[0]

    @property
    def version(self) -> int:
        """The version in the path; `LATEST` for the word `latest`. Raises RegistryError."""
        text = self.words[1].strip()
        if text.lower() == "latest":
            return LATEST
        if not _NUMBER.match(text) or not (0 < int(text) <= bodies.INT_MAX or int(text) == LATEST):
            raise errors.invalid_version(text)
        return int(text)

    @property
    def schema_id(self) -> int:
        """The id in the path. Raises RegistryError."""
        if not _NUMBER.match(self.words[0]) or int(self.words[0]) > bodies.INT_MAX:
            raise RegistryError(404, "HTTP 404 Not Found")
        return int(self.words[0])

    @property
    def submitted(self) -> Submitted:
        """The schema in the body. Raises RegistryError."""
        text, schema_type = self.text("schema") or "", self.text("schemaType") or AVRO
        try:
            schema_id, version = (bodies.number(self.body.get(key), key) for key in ("id", "version"))
            content = Content(schema_type, text, references_of(self.body.get("references")), contract_of(self.body))
        except LookupError as error:
            raise errors.InvalidSchemaError(str(error.args[0])) from error
        except (TypeError, ValueError) as error:
            raise errors.bad_request(error) from error
        return Submitted(content, -1 if schema_id is None else max(-1, schema_id), version or 0, self.flag("normalize"))

    def text(self, name: str) -> str | None:
        """Return a text field of the body; None if it is missing. Raises RegistryError."""
        try:
            return bodies.text(self.body.get(name), name)
        except TypeError as error:
            raise errors.bad_request(error) from error


class Api:
    """The REST API. Its answers are JSON values, or `Text`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def answer(
        self, method: str, words: Sequence[str], query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Any:
        """Return the answer to a request whose path consists of `words`. Raises RegistryError."""
        fitting = [(route, found) for route in _ROUTES if (found := _match(route.path, words)) is not None]
        for route, found in fitting:
            if route.method == method:
                if body is None and method in ("POST", "PUT"):
                    raise RegistryError(422, "The request has no body")
                # Hold the lock for the whole request, so that no other request sees a half-made change.
                with self._registry.lock:
                    try:
                        return route.function(self._registry, Request(found, query, body or {}))
                    except RecursionError as error:
                        raise errors.InvalidSchemaError("The schemas are nested too deeply") from error
        if fitting:
            raise RegistryError(405, "HTTP 405 Method Not Allowed")
        raise RegistryError(404, "HTTP 404 Not Found")


class Text(str):
    """An answer that is sent as plain text, while other answers are sent as JSON."""


class _Route(NamedTuple):
    method: str
    path: tuple[str, ...]
    function: Callable[[Registry, Request], Any]


def _match(path: tuple[str, ...], words: Sequence[str]) -> list[str] | None:
    if len(path) != len(words) or any(a not in ("{}", b) for a, b in zip(path, words, strict=True)):
        return None
    return [word for place, word in zip(path, words, strict=True) if place == "{}"]


# ---- subjects


def _with_type(found: dict[str, Any]) -> dict[str, Any]:
    # A stored record omits the type of an Avro schema, but an answer must have it.
    return {"schemaType": AVRO, **found}


def _subjects(registry: Registry, request: Request) -> Any:
    prefix = request.query.get("subjectPrefix", "").removeprefix(":*:")
    only = request.flag("deletedOnly")
    found = []
    for subject in sorted(registry.state.subjects):
        live = bool(registry.state.versions(subject))
        if subject.startswith(prefix) and (not live if only else live or request.flag("deleted")):
            found.append(subject)
    return request.page(found)


def _lookup(registry: Registry, request: Request) -> Any:
    return _with_type(registry.lookup(request.subject, request.submitted, deleted=request.flag("deleted")).entry())


def _delete_subject(registry: Registry, request: Request) -> Any:
    return registry.delete_subject(request.subject, permanent=request.flag("permanent"))


def _versions(registry: Registry, request: Request) -> Any:
    only, deleted = request.flag("deletedOnly"), request.flag("deleted")
    found = registry.state.versions(request.subject, deleted=deleted or only)
    if not found:
        raise errors.subject_not_found(request.subject)
    return request.page([each.version for each in found if each.deleted or not only])


def _register(registry: Registry, request: Request) -> Any:
    made = registry.register(request.subject, request.submitted)
    found = {"id": made.id, "version": made.version, **_with_type(described(made.content))}
    if made.content.schema_type == PROTOBUF:
        # Left out: clients for Python store the schema of this answer, and cannot read the text of a Protobuf schema.
        del found["schema"]
    return found


def _found(registry: Registry, request: Request, *, deleted: bool | None = None) -> Version:
    deleted = request.flag("deleted") if deleted is None else deleted
    return registry.find(request.subject, request.version, deleted=deleted)


def _formatted(registry: Registry, request: Request, content: Content) -> Content:
    form = request.query.get("format", "").strip()
    return content._replace(text=registry.parsed(content).formatted(form)) if form else content


def _version(registry: Registry, request: Request) -> Any:
    found = _found(registry, request)
    return {**_with_deleted(found), "schema": _formatted(registry, request, found.content).text}


def _with_deleted(found: Version) -> dict[str, Any]:
    return {**_with_type(found.entry()), "deleted": found.deleted}


def _version_text(registry: Registry, request: Request) -> Any:
    return Text(_formatted(registry, request, _found(registry, request).content).text)


def _delete_version(registry: Registry, request: Request) -> Any:
    return registry.delete_version(request.subject, request.version, permanent=request.flag("permanent"))


def _referenced_by(registry: Registry, request: Request) -> Any:
    found = _found(registry, request, deleted=True)
    others = registry.state.referenced_by(found.subject, found.version, deleted=request.flag("deleted"))
    return request.page(sorted({each.id for each in others}))


# ---- ids


def _schemas(registry: Registry, request: Request) -> Any:
    prefix = request.query.get("subjectPrefix", "").removeprefix(":*:")
    found: list[Version] = []
    for each in registry.state.all_versions():
        if not each.subject.startswith(prefix) or (each.deleted and not request.flag("deleted")):
            continue
        if request.flag("latestOnly") and found and found[-1].subject == each.subject:
            found.pop()
        found.append(each)
    return request.page([_with_deleted(each) for each in found])


def _of_id(registry: Registry, request: Request) -> Any:
    found = registry.of_id(request.schema_id, request.query.get("subject"))
    shown = {**_with_deleted(found), **described(_formatted(registry, request, found.content))}
    del shown["id"]
    return {**shown, "maxId": registry.state.max_id} if request.flag("fetchMaxId") else shown


def _text_of_id(registry: Registry, request: Request) -> Any:
    found = registry.of_id(request.schema_id, request.query.get("subject"))
    return Text(_formatted(registry, request, found.content).text)


def _uses(registry: Registry, request: Request) -> list[Version]:
    found = registry.state.of_id(request.schema_id)
    if not found:
        raise errors.schema_not_found()
    return [each for each in found if request.flag("deleted") or not each.deleted]


def _subjects_of_id(registry: Registry, request: Request) -> Any:
    return request.page(list(dict.fromkeys(each.subject for each in _uses(registry, request))))


def _versions_of_id(registry: Registry, request: Request) -> Any:
    return request.page(
        [{"subject": each.subject, "version": each.version} for each in _uses(registry, request)],
    )


# ---- compatibility, levels, modes


def _check(registry: Registry, request: Request, version: int | None) -> Any:
    verbose = request.flag("verbose")
    try:
        found = registry.check(request.subject, request.submitted, version)
    except errors.InvalidSchemaError as error:
        if not verbose:
            raise
        found = [str(error)]
    return {"is_compatible": not found, **({"messages": found} if verbose else {})}


def _check_all(registry: Registry, request: Request) -> Any:
    return _check(registry, request, None)


def _check_version(registry: Registry, request: Request) -> Any:
    return _check(registry, request, request.version)


def _place(request: Request) -> str | None:
    return request.subject if request.words else None


def _shown_config(found: Mapping[str, Any], key: str = "compatibilityLevel") -> dict[str, Any]:
    renamed = {"compatibilityLevel": key}
    return {renamed.get(each, each): value for each, value in found.items() if each != "subject"}


def _config(registry: Registry, request: Request) -> Any:
    subject = _place(request)
    if request.flag("defaultToGlobal"):
        return _shown_config(registry.config_in_scope(subject))
    found = registry.config_of(subject)
    if found is None:
        raise errors.no_subject_level(str(subject))
    return _shown_config(found)


def _set_config(registry: Registry, request: Request) -> Any:
    changes: dict[str, Any] = {}
    if "compatibility" in request.body:
        level = request.text("compatibility")
        changes["compatibilityLevel"] = None if level is None else level.upper()
    try:
        normalize = bodies.boolean(request.body.get("normalize"), "normalize")
    except ValueError as error:
        raise errors.bad_request(error) from error
    if normalize is not None:
        changes["normalize"] = normalize
    return _shown_config(registry.set_config(_place(request), changes), "compatibility")


def _delete_config(registry: Registry, request: Request) -> Any:
    return _shown_config(registry.delete_config(_place(request)))


def _mode(registry: Registry, request: Request) -> Any:
    subject = _place(request)
    if subject is None or request.flag("defaultToGlobal"):
        return {"mode": registry.mode_in_scope(subject)}
    if subject not in registry.state.modes:
        raise errors.no_subject_mode(subject)
    return {"mode": registry.state.modes[subject]}


def _set_mode(registry: Registry, request: Request) -> Any:
    mode = request.text("mode") or ""
    registry.set_mode(_place(request), mode.upper(), force=request.flag("force"))
    return {"mode": mode}


def _delete_mode(registry: Registry, request: Request) -> Any:
    return {"mode": registry.delete_mode(_place(request))}


def _route(line: str, function: Callable[[Registry, Request], Any]) -> _Route:
    method, path = line.split()
    return _Route(method, tuple(path.split("/")[1:]) if path != "/" else (), function)


_ROUTES: Final = [
    _route("GET /", lambda registry, request: {}),
    _route("GET /contexts", lambda registry, request: ["."]),
    _route("GET /subjects", _subjects),
    _route("POST /subjects/{}", _lookup),
    _route("DELETE /subjects/{}", _delete_subject),
    _route("GET /subjects/{}/versions", _versions),
    _route("POST /subjects/{}/versions", _register),
    _route("GET /subjects/{}/versions/{}", _version),
    _route("DELETE /subjects/{}/versions/{}", _delete_version),
    _route("GET /subjects/{}/versions/{}/schema", _version_text),
    _route("GET /subjects/{}/versions/{}/referencedby", _referenced_by),
    _route("GET /schemas", _schemas),
    _route("GET /schemas/types", lambda registry, request: list(TYPES)),
    _route("GET /schemas/ids/{}", _of_id),
    _route("GET /schemas/ids/{}/schema", _text_of_id),
    _route("GET /schemas/ids/{}/subjects", _subjects_of_id),
    _route("GET /schemas/ids/{}/versions", _versions_of_id),
    _route("POST /compatibility/subjects/{}/versions", _check_all),
    _route("POST /compatibility/subjects/{}/versions/{}", _check_version),
    _route("GET /config", _config),
    _route("PUT /config", _set_config),
    _route("DELETE /config", _delete_config),
    _route("GET /config/{}", _config),
    _route("PUT /config/{}", _set_config),
    _route("DELETE /config/{}", _delete_config),
    _route("GET /mode", _mode),
    _route("PUT /mode", _set_mode),
    _route("DELETE /mode", _delete_mode),
    _route("GET /mode/{}", _mode),
    _route("PUT /mode/{}", _set_mode),
    _route("DELETE /mode/{}", _delete_mode),
]
