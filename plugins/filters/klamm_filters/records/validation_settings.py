"""Settings of `record_validation`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from klamm import setting

FORMATS = ("any", "utf8", "json")


@dataclass(frozen=True, slots=True)
class RecordRuleSettings:
    """The required format of the records in some topics."""

    topics: tuple[str, ...] = setting(doc="Names of topics, or patterns as in `orders-*`.")
    value: str = setting("any", doc="Format of values.", choices=FORMATS)
    value_schema: Path | None = setting(
        None, doc="File with a JSON Schema that each value must match; needs klamm[jsonschema]."
    )
    key: str = setting("any", doc="Format of keys.", choices=FORMATS)
    key_schema: Path | None = setting(None, doc="File with a JSON Schema that each key must match.")
    null_value: bool = setting(True, doc="Accept records without a value, i.e. tombstones.")
    null_key: bool = setting(True, doc="Accept records without a key.")


@dataclass(frozen=True, slots=True)
class RecordValidationSettings:
    """`[listeners.NAME.record_validation]`."""

    rules: dict[str, RecordRuleSettings] = setting(
        {},
        doc="Rules, each in its own table. The first rule that names a topic applies; topics that no rule names are "
        "not checked.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield problems: schemas that cannot be used, and rules without a check."""
        from klamm_filters.records.formats import load_schema

        if not self.rules:
            yield "rules", "there is no rule, so nothing is checked"
        for name, rule in self.rules.items():
            if not rule.topics:
                yield f"rules.{name}.topics", "name topics, or * for all"
            for key, path in (("value_schema", rule.value_schema), ("key_schema", rule.key_schema)):
                if path is not None:
                    try:
                        load_schema(path)
                    except OSError as error:
                        yield f"rules.{name}.{key}", f"{path}: {error.strerror}"
                    except (ValueError, ImportError) as error:
                        yield f"rules.{name}.{key}", str(error)
