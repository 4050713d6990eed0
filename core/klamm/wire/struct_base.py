"""The base class of all generated messages."""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple, Protocol


class ErrorFields(NamedTuple):
    """Error codes of a struct: its own fields, and lists of structs that have some.

    `named_by` is the field that names the subject of the errors, such as a topic's name; with `has_topic_id`, the field
    `topic_id` names it if that name is empty.
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


def copy_message(message: Any) -> Any:
    """A copy of a message whose structs and lists are its own; bytes, records and file regions are shared.

    Anything else is returned as it is.
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
    """The generated class itself: a subclass may keep an encoded form that a changed copy must not have."""
    return next(one for one in kind.__mro__ if WireStruct in one.__bases__)


class Message(Protocol):
    """A request or a response."""

    API_KEY: ClassVar[int]

    def encode(self, version: int) -> bytes:
        """The body, without header. Raises WireError for a version or value that cannot be encoded."""
        ...
