"""`ParsedSchema`: the interface of each schema format. `problems`: checks a schema against the earlier ones.

`Registry` calls them, on the threads of the HTTP server.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

from klamm_schema_registry.errors import InvalidSchemaError

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"

# The modules of the parsers, imported when a schema of their type is first registered.
_PARSERS: Final = {
    JSON: "klamm_schema_registry.json_schema.schema",
    PROTOBUF: "klamm_schema_registry.protobuf.schema",
    AVRO: "klamm_schema_registry.avro.schema",
}

TYPES: Final = tuple(_PARSERS)
LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_MAX_OLD_CHARACTERS: Final = 10 * 1024
_MAX_STEPS: Final = 200_000
_CHARACTERS_PER_STEP: Final = 256
_ELEMENTS_PER_STEP: Final = 16


class Steps:
    """A counter that ends one piece of work if a hostile schema needs too many steps."""

    def __init__(self, left: int = _MAX_STEPS, problem: str = "The schemas are too complex to be compared") -> None:
        self._left = left
        self._problem = problem

    def take(self, count: int = 1) -> None:
        """Count steps. Raises InvalidSchemaError if there are too many."""
        self._left -= count
        if self._left < 0:
            raise InvalidSchemaError(self._problem)

    def take_characters(self, count: int) -> None:
        """Count the work on a text: many characters are one step."""
        self.take(count // _CHARACTERS_PER_STEP)

    def take_elements(self, count: int) -> None:
        """Count the work on sets: several elements are one step."""
        self.take(count // _ELEMENTS_PER_STEP)


class ParsedSchema(ABC):
    """A valid schema of any format."""

    has_references = False

    @abstractmethod
    def canonical(self) -> str:
        """Return the text that the registry stores."""

    def check_new(self) -> None:  # noqa: B027
        """Raise ValueError for an error that is accepted in a stored schema, but not in a new one.

        Does nothing here; formats with such errors override it.
        """

    @abstractmethod
    def normalized(self) -> str:
        """Return the text that all equivalent schemas share, for `normalize=true`."""

    def resolved(self) -> str:
        """Return the text with the referenced schemas in place of the references."""
        return self.canonical()

    def formatted(self, form: str) -> str:
        """Return the text in the form that the query parameter `format` names. An unknown form is ignored."""
        return self.resolved() if form == "resolved" else self.canonical()

    @abstractmethod
    def unreadable(self, written: ParsedSchema, steps: Steps) -> list[str]:
        """Return the reasons why this schema cannot read data of the schema `written`, which has the same format.

        The texts contain `{reader}` and `{writer}`, which the caller replaces by "new" and "old".
        """


def strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for NaN and Infinity, which Python accepts."""
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:200]} is too large")
    return found


def parse(schema_type: str, text: str, references: Mapping[str, str]) -> ParsedSchema:
    """Return the schema in a text. Raises InvalidSchemaError.

    `references` are the texts of the schemas that it needs. A schema comes after those that it needs itself.
    """
    if schema_type not in _PARSERS:
        raise InvalidSchemaError(f"Invalid schema type {schema_type}")
    try:
        parsed: ParsedSchema = importlib.import_module(_PARSERS[schema_type]).parse(text, references)
    except ImportError as error:
        raise InvalidSchemaError(
            f"Schemas of type {schema_type} need the package {error.name}: pip install 'klamm[registry]'"
        ) from error
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InvalidSchemaError(f"Invalid schema of type {schema_type}, details: {said}") from error
    return parsed


def problems(level: str, new: tuple[str, ParsedSchema], earlier: Iterable[tuple[str, int, ParsedSchema]]) -> list[str]:
    """Return the reasons why a schema may not follow the earlier ones; an empty list if it may.

    Schemas come with their type, and earlier ones with their version too; the latest comes first. As in Confluent's
    registry, the reasons are those of the first incompatible schema.
    """
    direction, _, transitive = level.partition("_")
    if direction == "NONE":
        return []
    steps = Steps()
    for schema_type, version, old in earlier if transitive else itertools.islice(earlier, 1):
        if schema_type != new[0]:
            return ["Incompatible because of different schema type"]
        try:
            found = _between(direction, new[1], old, version, steps)
        except RecursionError as error:
            raise InvalidSchemaError("The schemas are nested too deeply to be compared") from error
        except ValueError as error:
            raise InvalidSchemaError(f"The schemas cannot be compared: {error}") from error
        if found:
            return found
    return []


def _between(direction: str, new: ParsedSchema, old: ParsedSchema, version: int, steps: Steps) -> list[str]:
    forward, backward = [], []
    if direction in ("FORWARD", "FULL"):
        forward = [_filled(each, "old", "new") for each in old.unreadable(new, steps)]
    if direction in ("BACKWARD", "FULL"):
        backward = [_filled(each, "new", "old") for each in new.unreadable(old, steps)]
    # As in Confluent's registry: FULL checks both directions, but only shows the old schema if `backward` has problems.
    about_old = backward or (forward and direction == "FORWARD")
    shown = [f"{{oldSchemaVersion: {version}}}", _shown(old.canonical())] if about_old else []
    return [*forward, *backward, *shown]


def _filled(text: str, reader: str, writer: str) -> str:
    return text.replace("{reader}", reader).replace("{writer}", writer)


def _shown(text: str) -> str:
    if len(text) <= _MAX_OLD_CHARACTERS:
        return f"{{oldSchema: '{text}'}}"
    return f"{{oldSchema: <truncated> '{text[:_MAX_OLD_CHARACTERS]}...'}}"
