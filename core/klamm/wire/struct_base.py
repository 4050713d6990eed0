"""The base classes of all generated messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Self

from klamm.wire.primitives import DECODE_ERRORS, ENCODE_ERRORS, ChunkBuffer, ReadBuffer, WireError, join_chunks

Reader = Callable[[ReadBuffer, int, int], tuple[Any, int]]
Writer = Callable[[Any, Any, int], None]


class ErrorFields(NamedTuple):
    """The error codes of a struct: its own fields, and lists of structs that have error codes.

    `named_by` is the field that names the subject of the errors, e.g. a topic. If `has_topic_id` is True and the name
    is empty, the field `topic_id` identifies the topic.
    """

    codes: tuple[str, ...]
    lists: tuple[tuple[str, ErrorFields], ...]
    named_by: str | None
    has_topic_id: bool


NO_ERROR_FIELDS: Final = ErrorFields((), (), None, False)


class WireStruct:
    """The base class of structs, whose fields are slots. Structs are equal if their fields are equal.

    `ERRORS` says which fields have error codes.
    """

    __slots__: tuple[str, ...] = ()
    ERRORS: ClassVar[ErrorFields] = NO_ERROR_FIELDS

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class WireMessage(WireStruct):
    """A whole message. `CODECS` has the functions that read and write it, by version.

    `BUFFER` is the type from which they read. `bytes` makes no copy if the value is of type `bytes` already.
    """

    __slots__ = ()
    BUFFER: ClassVar[type[Any]] = bytes
    CODECS: ClassVar[Mapping[int, tuple[Reader, Writer]]] = MappingProxyType({})

    @classmethod
    def add_codec(cls, versions: range, read: Reader, write: Writer) -> None:
        """Register the functions that read and write these versions. The generated modules call this at import."""
        cls.CODECS = {**cls.CODECS, **dict.fromkeys(versions, (read, write))}

    @classmethod
    def decode(cls, version: int, buffer: ReadBuffer, offset: int = 0) -> Self:
        """Return the message in a body. Raises WireError."""
        codec = cls.CODECS.get(version)
        if codec is None:
            raise WireError(f"{cls.__name__} has no version {version}")
        try:
            message: Self = codec[0](cls.BUFFER(buffer), offset, version)[0]
        except DECODE_ERRORS as error:
            raise WireError(f"{cls.__name__} v{version}: {error}") from error
        return message

    def encode(self, version: int) -> bytes:
        """Return the body. Raises WireError."""
        out = bytearray()
        self._write(out, version)
        return bytes(out)

    def _write(self, out: bytearray, version: int) -> None:
        codec = self.CODECS.get(version)
        if codec is None:
            raise WireError(f"{type(self).__name__} has no version {version}")
        try:
            codec[1](out, self, version)
        except ENCODE_ERRORS as error:
            raise WireError(f"{type(self).__name__} v{version}: {error}") from error


class RecordsMessage(WireMessage):
    """A message with records. It reads and writes them without a copy."""

    __slots__ = ()
    BUFFER = memoryview

    def encode_chunks(self, version: int) -> list[Any]:
        """Return the body as buffers and file regions. Raises WireError."""
        out = ChunkBuffer()
        self._write(out, version)
        return out.finish()

    def encode(self, version: int) -> bytes:
        """Return the body as bytes. File regions are read. Raises WireError."""
        return join_chunks(self.encode_chunks(version))


_BASES: Final = frozenset((WireStruct, WireMessage, RecordsMessage))


def copy_message(message: Any) -> Any:
    """Return a copy of a message with new structs and lists; bytes, records and file regions are shared.

    Any other object is returned unchanged.
    """
    if isinstance(message, WireStruct):
        copied = object.__new__(generated_class(type(message)))
        for name in copied.__slots__:
            object.__setattr__(copied, name, copy_message(getattr(message, name)))
        return copied
    if isinstance(message, list):
        return [copy_message(element) for element in message]
    return message


def generated_class(kind: type[WireStruct]) -> type[WireStruct]:
    """Return the generated class of a message class.

    A subclass may keep the encoded form of a message, which a changed copy must not have.
    """
    return next(one for one in kind.__mro__ if not _BASES.isdisjoint(one.__bases__))


class Message(Protocol):
    """A request or a response of the API with the key `API_KEY`."""

    API_KEY: ClassVar[int]

    def encode(self, version: int) -> bytes:
        """Return the body, without header. Raises WireError for a version or value that cannot be encoded."""
        ...
