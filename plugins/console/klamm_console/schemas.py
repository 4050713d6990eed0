"""`Schemas`: gets schemas from a Schema Registry, and decodes values with them."""

from __future__ import annotations

import functools
import io
import json
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from klamm_console import avro

if TYPE_CHECKING:
    from klamm_console.protobuf import Found, ProtobufSchema

HEAD_BYTES: Final = 5
"""A zero and the schema's id, before each value that a serializer of a Schema Registry writes."""
_WITHIN_S: Final = 2.0
"""The time limit for connecting to the registry, and also for reading the whole of its answer."""
_MAX_SCHEMA_BYTES: Final = 128 << 10
_MAX_DECODED_BYTES: Final = 1 << 20
"""Decoding takes several times the memory of a value, because it decodes the whole."""
_ASKED: Final = 20
"""Maximum number of schemas that are requested for one page, without references."""
_REFERENCES: Final = 20
"""Maximum number of requests for one page that get descriptors and references."""
_STEPS: Final = 100_000


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    """Return an opener of URLs that uses no proxy. Creating it loads the system's certificates."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _Http, _Https)


class _InTime(io.RawIOBase):
    """The bytes of an answer. Reading fails if the whole answer takes longer than `_WITHIN_S`.

    The timeout of a socket alone would not do, because it begins again with each part of the answer.
    """

    def __init__(self, sock: socket.socket, content: Any) -> None:
        self._sock = sock
        self._content = content
        self._end_s = monotonic() + _WITHIN_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._end_s - monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer takes too long")
        self._sock.settimeout(left_s)
        read: int | None = self._content.readinto(buffer)
        return read

    def close(self) -> None:
        self._content.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        whole: Any = self.fp
        self.fp = io.BufferedReader(_InTime(sock, whole.detach()))


class _Timed(urllib.request.AbstractHTTPHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> HTTPResponse:
        def connection(host: str, **given: Any) -> Any:
            made = http_class(host, **given)
            made.response_class = _Answer
            return made

        return super().do_open(connection, req, **options)


class _Http(_Timed, urllib.request.HTTPHandler):
    pass


class _Https(_Timed, urllib.request.HTTPSHandler):
    pass


class Schema:
    """A parsed schema. `protobuf` is set by the page, because it needs further requests."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.protobuf: ProtobufSchema | None = None
        if kind == "AVRO":
            self.avro = json.loads(text)
            self.names = avro.names_of(self.avro)


class Schemas:
    """The schemas of a registry. Any thread may call all methods.

    `url` returns the address of the registry, or an empty text if none is configured. It is called on any thread.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url

    def page(self) -> Page:
        """Return a decoder for the values of one page."""
        return Page(self, self._url())

    def find(self, url: str, number: int) -> Schema:
        """Return the schema with this id. Raises OSError or ValueError."""
        content = self.ask(url, f"schemas/ids/{number}?format=resolved")
        try:
            return Schema(str(content.get("schemaType", "AVRO")), content["schema"])
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"the registry's answer for the schema {number} is invalid") from error

    def ask(self, url: str, path: str) -> Any:
        """Return the registry's answer for a schema. Raises OSError or ValueError."""
        asked = f"{url.rstrip('/')}/{path}"
        try:
            with _opener().open(asked, timeout=_WITHIN_S) as answer:
                body = answer.read(_MAX_SCHEMA_BYTES + 1)
        except HTTPException as error:
            raise OSError(str(error)) from error
        if len(body) > _MAX_SCHEMA_BYTES:
            raise ValueError(f"a schema is larger than {_MAX_SCHEMA_BYTES >> 10} KiB")
        try:
            return json.loads(body)
        except RecursionError as error:
            raise ValueError("the registry's answer is nested too deeply") from error


class Page:
    """The decoder of one page's values, with a limited number of requests and steps."""

    def __init__(self, schemas: Schemas, url: str) -> None:
        self._schemas = schemas
        self._url = url
        self._failure = ""
        self._steps = avro.Steps(_STEPS)
        self._found: dict[int, Schema | str] = {}
        self._references = 0

    def decoded(self, number: int, data: bytes, most: int) -> tuple[str, str]:
        """Return the format and the text of a value without its head. The text has at most about `most` characters.

        Raises ValueError with the reason if the value cannot be decoded.
        """
        schema = self._schema(number)
        if isinstance(schema, str):
            raise ValueError(schema)
        if schema.kind == "JSON":
            return "JSON", data.decode()
        if len(data) > _MAX_DECODED_BYTES:
            raise ValueError("the value is too large to be decoded")
        if schema.kind == "AVRO":
            return "Avro", _text_of(avro.decoded(schema.avro, schema.names, data, self._steps), most)
        if schema.protobuf is not None:
            return "Protobuf", _text_of(schema.protobuf.decoded(data, self._steps), most)
        raise ValueError(f"the format {schema.kind[:20]} is not decoded")

    def _schema(self, number: int) -> Schema | str:
        if not self._url:
            return "no Schema Registry is known: set [console] schema_registry"
        if number not in self._found:
            if self._failure:
                return self._failure
            if len(self._found) >= _ASKED:
                return "the values of this page have too many schemas"
            self._found[number] = self._asked(number)
        return self._found[number]

    def _asked(self, number: int) -> Schema | str:
        try:
            found = self._schemas.find(self._url, number)
            if found.kind == "PROTOBUF":
                found.protobuf = self._protobuf(number)
            return found
        except urllib.request.HTTPError as error:
            return f"the registry answers {error.code} to the question for the schema {number}"
        except OSError:
            # The page does not wait again for each further schema.
            self._failure = "the Schema Registry does not answer"
            return self._failure
        except ValueError as error:
            return str(error)

    def _protobuf(self, number: int) -> ProtobufSchema:
        try:
            from klamm_console.protobuf import ProtobufSchema
        except ImportError as error:
            raise ValueError("Protobuf needs the package protobuf: pip install 'klamm[registry]'") from error
        return ProtobufSchema(self._descriptor(f"schemas/ids/{number}"), self._referenced)

    def _referenced(self, subject: str, version: int) -> Found:
        return self._descriptor(f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}")

    def _descriptor(self, path: str) -> Found:
        self._references += 1
        if self._references > _REFERENCES:
            raise ValueError("the schemas of this page have too many references")
        content = self._schemas.ask(self._url, f"{path}?format=serialized&deleted=true")
        try:
            references = [
                (str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in content.get("references") or ()
            ]
            return str(content["schema"]), references
        except (AttributeError, KeyError, TypeError, OverflowError) as error:
            raise ValueError("the registry's answer for a schema is invalid") from error


def _text_of(value: Any, most: int) -> str:
    """Return the beginning of a value as JSON. The names in a schema can make the whole text much longer than the
    data.
    """
    parts: list[str] = []
    try:
        for part in json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(value):
            parts.append(part)
            most -= len(part)
            if most < 0:
                break
    except RecursionError as error:
        raise ValueError("the value is nested too deeply") from error
    return "".join(parts)
