"""Checks of keys and values, for `record_validation`: functions that return a short error text for bytes, or None."""

from __future__ import annotations

import json
import math
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from klamm import clipped

Check = Callable[[bytes], "str | None"]

MAX_JSON_BYTES: Final = 8 * 1_048_576
"""Maximum size in bytes of one JSON text.

To parse it, Python needs up to eight times as much memory, and no other thread runs meanwhile.
"""
_UTF8_PIECE_BYTES: Final = 1_048_576


def check_of(kind: str, schema: Path | None) -> Check | None:
    """Return the check of a rule's key or value; None if all values pass. Raises the errors of `load_schema`."""
    if schema is not None:
        return _SchemaCheck(load_schema(schema))
    return {"any": None, "utf8": _utf8_problem, "json": _json_problem}[kind]


def load_schema(path: Path) -> Any:
    """Return the validator of a JSON Schema, of the draft that its `$schema` names, else 2020-12.

    Raises OSError, ImportError, and ValueError for an invalid schema.
    """
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8") from error
    except ValueError as error:
        raise ValueError(f"{path}: is not JSON: {error}") from error
    try:
        # Imported here, because most servers need neither.
        from jsonschema import SchemaError
        from jsonschema.validators import Draft202012Validator, extend, validator_for
        from referencing import Registry
    except ImportError as error:
        raise ImportError("schemas need the library jsonschema: pip install klamm[jsonschema]") from error
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"{path}: is not a JSON Schema: {error.message}") from error
    # With an empty registry, a reference to another document is an error, and no document is fetched.
    return extend(kind, {"uniqueItems": _unique_items})(schema, registry=Registry())


def _unique_items(validator: Any, is_wanted: Any, items: Any, _schema: Any) -> Iterator[Exception]:
    """Check `uniqueItems` in one pass. The library itself would compare all pairs of objects."""
    from jsonschema import ValidationError

    if is_wanted and validator.is_type(items, "array"):
        texts = {json.dumps(_with_whole_numbers(one), sort_keys=True) for one in items}
        if len(texts) < len(items):
            yield ValidationError(f"{items!r} has non-unique elements")


def _with_whole_numbers(value: Any) -> Any:
    """Return a JSON value with 1 in place of 1.0, because JSON Schema treats them as the same number."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_with_whole_numbers(one) for one in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(one) for name, one in value.items()}
    return value


def elements_of(content: bytes) -> int:
    """Return the approximate number of values in JSON, without parsing it."""
    return content.count(b",") + content.count(b"[") + content.count(b"{")


def _utf8_problem(content: bytes) -> str | None:
    # In pieces, because the decoded text may need four times as much memory as the bytes.
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), _UTF8_PIECE_BYTES):
            decoder.decode(content[start : start + _UTF8_PIECE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "not UTF-8"
    return None


def _not_a_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _whole(text: str) -> int:
    try:
        number = int(text)
        float(number)
    except OverflowError:
        raise ValueError("a number is too large") from None
    except ValueError:
        # Python refuses to convert so many digits, because that takes too long.
        raise ValueError("a number has too many digits") from None
    return number


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object. Raises ValueError if a name occurs twice, because parsers differ."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return members


_DECODER: Final = json.JSONDecoder(
    parse_constant=_not_a_number, parse_float=_finite, parse_int=_whole, object_pairs_hook=_members
)


def _parsed(content: bytes) -> Any:
    """Return the value of a JSON text.

    Raises ValueError for invalid JSON (RFC 8259) or UTF-8, and for JSON that is too large or nested too deep.
    """
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"more than {MAX_JSON_BYTES} bytes")
    try:
        return _DECODER.decode(content.decode())
    except RecursionError:
        raise ValueError("nested too deep") from None


def _json_problem(content: bytes) -> str | None:
    try:
        _parsed(content)
    except ValueError as error:
        return f"not JSON: {_reason(error)}"
    return None


def _reason(error: ValueError) -> str:
    return (
        error.msg
        if isinstance(error, json.JSONDecodeError)
        else "not UTF-8"
        if isinstance(error, UnicodeError)
        else str(error)
    )


class _SchemaCheck:
    """A check that a JSON text matches a schema. It reports the first error and its place."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def __call__(self, content: bytes) -> str | None:
        try:
            parsed = _parsed(content)
        except ValueError as error:
            return f"not JSON: {_reason(error)}"
        try:
            wrong = next(self._validator.iter_errors(parsed), None)
        except RecursionError:
            return "nested too deep"
        return None if wrong is None else f"{wrong.json_path}: {clipped(wrong.message)}"
