"""The base class of all generated messages."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple, Protocol


class ErrorFields(NamedTuple):
    """Where a struct has error codes: fields of its own, and lists of structs that have some.

    `named_by` is the field that says what the errors are about, such as a topic's name; with `has_topic_id`, the field
    `topic_id` says it where that name is empty.
    """

    codes: tuple[str, ...]
    lists: tuple[tuple[str, ErrorFields], ...]
    named_by: str | None
    has_topic_id: bool


NO_ERROR_FIELDS: Final = ErrorFields((), (), None, False)


class WireStruct:
    """Slots with a constructor; equal when the slots are."""

    __slots__: tuple[str, ...] = ()
    ERRORS: ClassVar[ErrorFields] = NO_ERROR_FIELDS

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class Message(Protocol):
    """A request or a response."""

    API_KEY: ClassVar[int]

    def encode(self, version: int) -> bytes:
        """The body, without header. Raises WireError for a version or value that cannot be encoded."""
        ...
