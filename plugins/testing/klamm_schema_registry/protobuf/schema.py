"""`parse`: reads a schema of Protocol Buffers from its text, or from a descriptor in base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from klamm_schema_registry.formats import ParsedSchema, Steps
from klamm_schema_registry.protobuf.comparison import Types, unreadable
from klamm_schema_registry.protobuf.compiling import compiled
from klamm_schema_registry.protobuf.printing import printed


class ProtobufSchema(ParsedSchema):
    """A schema of Protocol Buffers."""

    def __init__(self, file: FileDescriptorProto, imported: list[FileDescriptorProto]) -> None:
        self._file = file
        self._text = printed(file)
        self.types = Types(file, imported)

    def canonical(self) -> str:
        return self._text

    def normalized(self) -> str:
        return self._text

    def formatted(self, form: str) -> str:
        if form == "serialized":
            return base64.b64encode(self._file.SerializeToString(deterministic=True)).decode()
        return super().formatted(form)

    def unreadable(self, written: ParsedSchema, steps: Steps) -> list[str]:
        assert isinstance(written, ProtobufSchema)
        return unreadable(self.types, written.types, steps)


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Return the schema in a text. `references` are the texts of its imports. Raises ValueError."""
    return ProtobufSchema(*compiled(_as_text(text), references))


def _as_text(text: str) -> str:
    """Return the text of a schema, from text or from the descriptor that clients for Python send instead."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return text
    try:
        return printed(file)
    except LookupError as error:
        raise ValueError("the descriptor refers to what it does not have") from error
