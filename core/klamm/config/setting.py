"""`setting(...)`: a key's name, default, documentation, Kafka name and bounds in one place, as a dataclass field.

The conversion of values is klamm's own. The import of pydantic takes 85 ms, a third of the time that a start may take;
msgspec stops at the first error of a file; and neither reports the line of an error.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm.api.provider import ProviderKind
from klamm.config.problems import did_you_mean

_KEY: Final = "klamm"
REQUIRED: Final[Any] = MISSING
CLUSTER_WIDE: Final = "cluster-wide"
"""The `dynamic` of a setting that AlterConfigs changes for all brokers, or for one."""
PER_BROKER: Final = "per-broker"
"""The `dynamic` of a setting that AlterConfigs changes for one broker only."""
UNKNOWN_KEY: Final = "unknown key"


class SettingSpec(NamedTuple):
    """The declaration of one setting, made by `setting`.

    `name` is the key in TOML, `attribute` the field of the class, `kafka` Kafka's name of the setting if it has one.
    For the other fields see `setting`.
    """

    name: str
    attribute: str
    kind: Any
    default: Any
    doc: str
    kafka: str | None
    choices: tuple[Any, ...]
    minimum: float | None
    maximum: float | None
    check: Callable[[Any], str | None] | None
    parts: ProviderKind | None = None
    per_server: bool = False
    names_listeners: bool = False
    private: bool = False
    provider: ProviderKind | None = None
    deprecated: str = ""
    dynamic: str = ""
    counts_nodes: bool = False
    secret: bool = False


def setting(
    default: Any = REQUIRED,
    *,
    doc: str,
    name: str | None = None,
    kafka: str | None = None,
    choices: tuple[Any, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    check: Callable[[Any], str | None] | None = None,
    parts: ProviderKind | None = None,
    per_server: bool = False,
    names_listeners: bool = False,
    private: bool = False,
    provider: ProviderKind | None = None,
    deprecated: str = "",
    dynamic: str = "",
    counts_nodes: bool = False,
    secret: bool = False,
) -> Any:
    """Return a field of a settings class, which is a frozen dataclass.

    - `name`: a TOML key other than the field's name. In the file it may be quoted, or written as nested tables. In a
      class whose `DOTTED_KEYS` is True, the field `num_partitions` has the key `num.partitions`.
    - `kafka`: Kafka's key of the same meaning.
    - `check`: a function that returns the problem with a value, or None.
    - `parts`: the value names providers of this kind (a tuple of names). Each part is made with the settings in the
      table of its name below this table. The factory gets the parts as the argument with the field's name.
    - `provider`: the value names one provider of this kind. If it is unset, the kind's default is used.
    - `per_server`: all listeners that have the part must have the same value.
    - `names_listeners`: the value names listeners.
    - `private`: the value is a file or directory to which only the server may have access. A wider mode causes a
      warning.
    - `secret`: the value, e.g. a password, is not shown. A table with secrets is a secret.
    - `dynamic`: AlterConfigs can change the setting by its Kafka name while the server runs: CLUSTER_WIDE for one
      broker or for all, PER_BROKER only for one broker. A part gets the change through `reconfigure`.
    - `counts_nodes`: the value, in the settings of a handler set, is a number of nodes. Each listener of the set is
      opened once for each node, at the next ports (see `ListenerContext.node`).
    - `deprecated`: the replacement. A configuration that has the key works, with a warning.

    A settings class may have a method `problems`. It yields a key and a message for each setting that names an unusable
    file or contradicts another setting; the key "" stands for the whole table. `klamm check` and a start call it if all
    keys are valid by themselves; a reload does not, because parts keep their state.

    The settings of a handler set may have a property `more_ports`: further ports that each listener of the set binds.

    The settings of a listener's part may have a method `warnings(listener)`. It gets a `klamm.config.ListenerSecurity`
    and yields a key and a message for each risk, which `klamm check` and `klamm serve` report. The settings of a
    request scheduler may have this method too, to report settings without effect; its argument is the server's
    `io_threads`."""
    flags = (per_server, names_listeners, private)
    more = (*flags, provider, deprecated, dynamic, counts_nodes, secret)
    metadata = {_KEY: (name, doc, kafka or name, choices, minimum, maximum, check, parts, *more)}
    if default is MISSING:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


# Cached, because a start examines each class a dozen times and evaluating annotations is slow.
_SPECS: Final[dict[type, Mapping[str, SettingSpec]]] = {}


def specs_of(settings: type) -> Mapping[str, SettingSpec]:
    """Return the settings of a class by their names in TOML. Raises TypeError if it is not a settings class."""
    if settings in _SPECS:
        return _SPECS[settings]
    found = {}
    if not isinstance(settings, type) or not dataclasses.is_dataclass(settings):
        raise TypeError(f"{settings!r} is not a settings class: a frozen dataclass was expected")
    kinds = typing.get_type_hints(settings)
    is_dotted = getattr(settings, "DOTTED_KEYS", False)
    for field in dataclasses.fields(settings):
        if _KEY not in field.metadata:
            raise TypeError(f"{settings.__qualname__}.{field.name} must be made with klamm.setting(…)")
        name, doc, kafka, *rest = field.metadata[_KEY]
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        kind = kinds[field.name]
        if default is not MISSING and not _fits(kind, default):
            wanted = kind.__name__ if type(kind) is type else kind
            raise TypeError(
                f"{settings.__qualname__}.{field.name}: {default!r} is not a valid default for the type {wanted}"
            )
        if is_dotted and name is None:
            name = field.name.replace("_", ".")
            kafka = kafka or name
        spec = SettingSpec(name or field.name, field.name, kind, default, doc, kafka, *rest)
        found[spec.name] = spec
    _SPECS[settings] = found
    return found


def _fits(kind: Any, default: Any) -> bool:
    """Return True if `_convert` returns a default of that type unchanged. False for an unknown type."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return default is None or any(_fits(each, default) for each in typing.get_args(kind) if each is not type(None))
    if kind is float:
        return isinstance(default, (int, float))
    known = kind is Any or kind in _KINDS or origin in (tuple, dict) or dataclasses.is_dataclass(kind)
    return known and (kind is Any or isinstance(default, origin or kind))


def flatten(table: Mapping[str, Any], known: Mapping[str, SettingSpec]) -> dict[str, Any]:
    """Return the table with nested tables replaced by dotted keys where a setting has the dotted name.

    TOML reads an unquoted dotted key as nested tables.
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and key not in known and any(name.startswith(key + ".") for name in known):
            _flatten_below(key, value, known, flat)
        else:
            flat[key] = value
    return flat


def _flatten_below(
    prefix: str, table: Mapping[str, Any], known: Mapping[str, SettingSpec], flat: dict[str, Any]
) -> None:
    for key, value in table.items():
        name = f"{prefix}.{key}"
        if isinstance(value, dict) and name not in known:
            _flatten_below(name, value, known, flat)
        else:
            flat[name] = value


Report = Callable[[str, str], None]


def convert(
    settings: type, table: Mapping[str, Any], report: Report, base: Path, *, lenient: Container[str] = ()
) -> Any:
    """Return an instance of a settings class, or None after calling `report(key, message)` for each problem.

    The keys in `lenient` come from the command line: their numbers and booleans may be strings. Paths are relative to
    `base`.
    """
    specs = specs_of(settings)
    values: dict[str, Any] = {}
    sound = True
    for key, value in flatten(table, specs).items():
        spec = specs.get(key)
        if spec is None:
            report(key, UNKNOWN_KEY + did_you_mean(key, specs))
            sound = False
            continue
        try:
            values[spec.attribute] = check_value(spec, value, base, lenient=key in lenient)
        except ValueError as error:
            report(key, str(error))
            sound = False
    for spec in specs.values():
        if spec.default is MISSING and spec.attribute not in values and spec.name not in table:
            report(spec.name, "is required")
            sound = False
    return settings(**values) if sound else None


def check_value(spec: SettingSpec, value: Any, base: Path, *, lenient: bool = False) -> Any:
    """Return the value converted to the setting's type. Raises ValueError, which states the expected type."""
    converted = _convert(spec.kind, value, base, lenient)
    if spec.choices and converted not in spec.choices:
        known = ", ".join(f'"{choice}"' for choice in spec.choices)
        hint = did_you_mean(str(value), map(str, spec.choices))
        raise ValueError(f"must be one of {known}, not {value!r}{hint}")
    # `not` refuses NaN too, because each comparison with it is False.
    if spec.minimum is not None and converted is not None and not converted >= spec.minimum:
        raise ValueError(f"must be at least {_bound(spec.minimum)}, not {converted}")
    if spec.maximum is not None and converted is not None and not converted <= spec.maximum:
        raise ValueError(f"must be at most {_bound(spec.maximum)}, not {converted}")
    if spec.check is not None:
        complaint = spec.check(converted)
        if complaint:
            raise ValueError(complaint)
    return converted


def _bound(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else f"{limit:g}"


def _convert(kind: Any, value: Any, base: Path, lenient: bool) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _convert(next(k for k in typing.get_args(kind) if k is not type(None)), value, base, lenient)
    if origin is tuple:
        if lenient and isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list):
            raise ValueError(f"must be a list, not {_name(value)}")
        of = typing.get_args(kind)[0]
        return tuple(_convert_item(of, item, base, lenient, f"item {number}") for number, item in enumerate(value, 1))
    if origin is dict:
        if lenient and isinstance(value, str):
            value = _pairs(value)
        if not isinstance(value, dict):
            raise ValueError(f"must be a table, not {_name(value)}")
        of = typing.get_args(kind)[1]
        return {str(key): _convert_item(of, item, base, lenient, f'"{key}"') for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return _convert_table(typing.cast(type, kind), value, base)
    if lenient and isinstance(value, str):
        value = _from_text(kind, value)
    if kind is Any:
        return value
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind is str and (isinstance(value, str) or (lenient and isinstance(value, (int, float)))):
        return str(value)
    if kind is Path and isinstance(value, str):
        return base / Path(value).expanduser()
    raise ValueError(f"must be {_KINDS.get(kind, str(kind))}, not {_name(value)}")


def _convert_item(kind: Any, value: Any, base: Path, lenient: bool, what: str) -> Any:
    try:
        return _convert(kind, value, base, lenient)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def _pairs(text: str) -> Any:
    """Return the pairs of `KEY:VALUE,KEY:VALUE`, Kafka's form of tables; keys may contain colons.

    Any other text is returned unchanged.
    """
    pairs = [part.strip().rpartition(":") for part in text.split(",") if part.strip()]
    return {key: value for key, _colon, value in pairs} if all(key for key, _colon, _value in pairs) else text


def _convert_table(kind: type, value: Any, base: Path) -> Any:
    """Convert a table to a settings class, as the value of a setting."""
    if not isinstance(value, dict):
        raise ValueError(f"must be a table, not {_name(value)}")
    problems: list[str] = []
    made = convert(kind, value, lambda key, message: problems.append(f"{key}: {message}"), base)
    if made is None:
        raise ValueError("; ".join(problems))
    return made


def _from_text(kind: Any, text: str) -> Any:
    try:
        if kind is int:
            return int(text.replace("_", ""))
        if kind is float:
            return float(text)
    except ValueError:
        return text
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return text


_KINDS: Final = {bool: "true or false", int: "an integer", float: "a number", str: "a string", Path: "a path"}


def _name(value: Any) -> str:
    if isinstance(value, (str, bool, int, float)):
        return f"{value!r}" if not isinstance(value, bool) else str(value).lower()
    return {"dict": "a table", "list": "a list"}.get(type(value).__name__, type(value).__name__)
