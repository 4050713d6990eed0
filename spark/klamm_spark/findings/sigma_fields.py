"""`RuleCondition`: translates the condition of a Sigma rule to SQL for both DuckDB and Spark.

A rule may use the fields of an audit event, `resource.FIELD` for the fields of its resources, and `attribute.NAME` for
the attributes that a state change gives a resource. docs/audit/sigma.md lists them. If a rule uses a field of
resources, the query has a row for each resource of an event. The tables are those of `klamm_spark.queries.event_views`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from sigma.conditions import ConditionAND, ConditionFieldEqualsValueExpression, ConditionNOT, ConditionOR
from sigma.conversion.base import TextQueryBackend
from sigma.conversion.state import ConversionState
from sigma.exceptions import SigmaError, SigmaFeatureNotSupportedByBackendError
from sigma.types import (
    CompareOperators,
    SigmaBool,
    SigmaCompareExpression,
    SigmaRegularExpression,
    SigmaString,
    SpecialChars,
)

from klamm.config import did_you_mean
from klamm_spark.events.event import FIELDS, LISTS, RESOURCE_FIELDS

TYPES: Final[dict[str, str]] = {
    **{field.name: field.type for field in FIELDS if field.type not in LISTS},
    **{f"resource.{field.name}": field.type for field in RESOURCE_FIELDS if field.type not in LISTS},
    "resource.principal": "string",
}
"""The type of each field. The fields `attribute.NAME` are not in it: they are text."""
_ATTRIBUTE: Final = "attribute."
_OF_AN_ATTRIBUTE: Final = {"old": "old_value", "new": "new_value", "operation": "operation"}
_PLAIN: Final = frozenset(" !#$%&()*+,-./:;<=>?@[]^_{|}~")
_CHANGE: Final = (
    "CASE WHEN {new} IS NULL THEN CASE WHEN {old} IS NOT NULL THEN 'removed' END WHEN {old} IS NULL THEN 'set' "
    "WHEN {new_number} < {old_number} THEN 'lowered' WHEN {new_number} > {old_number} THEN 'raised' "
    "WHEN {new} <> {old} THEN 'changed' ELSE 'kept' END"
)
# Kafka writes -1 for "no limit", so it counts as a very large number.
_NUMBER: Final = "try_cast(CASE WHEN {0} = '-1' THEN '1e300' ELSE {0} END AS DOUBLE)"


class UnknownFieldError(SigmaError):
    """Raised if a rule uses a field that the log source does not have."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f'the log source has no field "{name}"{did_you_mean(name, [*TYPES, "attribute.NAME"])}')


def literal(text: str) -> str:
    """Return a text as an SQL expression.

    DuckDB and Spark read quotes and backslashes in different ways. So such characters are written as `chr(NUMBER)`.
    """
    parts, plain = [], ""
    for character in text:
        if character.isalnum() or character in _PLAIN:
            plain += character
        else:
            parts += [f"'{plain}'", f"chr({ord(character)})"]
            plain = ""
    return f"concat({', '.join([*parts, repr(plain)])})" if parts else f"'{plain}'"


class RuleCondition(TextQueryBackend):
    """A translator of one rule's condition. It notes the tables that the rule's fields need."""

    name: ClassVar[str] = "klamm"
    formats: ClassVar[dict[str, str]] = {"default": "A condition in SQL"}
    requires_pipeline: ClassVar[bool] = False
    precedence = (ConditionNOT, ConditionAND, ConditionOR)
    group_expression = "({expr})"
    or_token, and_token, not_token, eq_token = "OR", "AND", "NOT", " = "
    bool_values: ClassVar[dict[bool, str | None]] = {True: "true", False: "false"}
    compare_operators: ClassVar[dict[CompareOperators, str] | None] = {
        CompareOperators.LT: "<",
        CompareOperators.LTE: "<=",
        CompareOperators.GT: ">",
        CompareOperators.GTE: ">=",
    }
    field_equals_field_expression = "{field1} = {field2}"
    field_equals_field_startswith_expression = "substring({field1}, 1, length({field2})) = {field2}"
    field_equals_field_endswith_expression = "right({field1}, length({field2})) = {field2}"
    field_equals_field_contains_expression = "position({field2} IN {field1}) > 0"
    field_null_expression = "{field} IS NULL"
    field_exists_expression = "{field} IS NOT NULL"
    field_not_exists_expression = "{field} IS NULL"

    def __init__(self) -> None:
        super().__init__()
        self._has_resources = False
        self._attributes: list[tuple[str, str]] = []

    def escape_and_quote_field(self, field_name: str) -> str:
        """Return the SQL expression of a field. Raises UnknownFieldError."""
        if field_name == "resource.principal":
            self._has_resources = True
            return "concat('User:', r.name)"
        scope, _, name = field_name.rpartition(".")
        if field_name in TYPES:
            self._has_resources = self._has_resources or bool(scope)
            return f"r.{name}" if scope else f"e.{name}"
        if not field_name.startswith(_ATTRIBUTE) or field_name == _ATTRIBUTE:
            raise UnknownFieldError(field_name)
        attribute = scope[len(_ATTRIBUTE) :]
        if attribute and name in _OF_AN_ATTRIBUTE:
            return self._attribute(attribute, _OF_AN_ATTRIBUTE[name])
        if attribute and name == "change":
            old, new = (self._attribute(attribute, column) for column in ("old_value", "new_value"))
            return _CHANGE.format(old=old, new=new, old_number=_NUMBER.format(old), new_number=_NUMBER.format(new))
        return self._attribute(field_name[len(_ATTRIBUTE) :], "value")

    def _attribute(self, name: str, column: str) -> str:
        if (name, column) not in self._attributes:
            self._attributes.append((name, column))
        return f"a.v{self._attributes.index((name, column))}"

    def tables(self) -> str:
        """Return the tables that the translated fields need, for the clause FROM."""
        if not (self._has_resources or self._attributes):
            return "events e"
        tables = "events e LEFT JOIN resources r ON r.event_id = e.event_id"
        if not self._attributes:
            return tables
        columns = ", ".join(
            f"max(CASE WHEN name = {literal(name)} THEN {column} END) AS v{number}"
            for number, (name, column) in enumerate(self._attributes)
        )
        names = ", ".join(literal(name) for name in dict.fromkeys(name for name, _ in self._attributes))
        return (
            f"{tables}\n  LEFT JOIN (SELECT event_id, position, {columns}\n    FROM attributes WHERE name IN ({names})"
            " GROUP BY event_id, position) a ON a.event_id = r.event_id AND a.position = r.position"
        )

    # ---- conditions: a comparison with a missing value is false, and its negation is true

    def convert_condition_not(self, cond: ConditionNOT, state: ConversionState) -> str:
        """Translate a negation."""
        return f"NOT coalesce({self.convert_condition(cond.args[0], state)}, false)"

    def convert_condition_field_eq_val_str(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        """Translate a comparison that ignores case."""
        return self._compared(cond, str.lower, f"lower({self._text(cond.field)})")

    def convert_condition_field_eq_val_str_case_sensitive(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        """Translate a comparison with the modifier `cased`, which respects case."""
        return self._compared(cond, str, self._text(cond.field))

    def _compared(self, cond: ConditionFieldEqualsValueExpression, fold: Callable[[str], str], field: str) -> str:
        assert isinstance(cond.value, SigmaString)
        if not cond.value.contains_special():
            return f"{field} = {literal(fold(''.join(map(str, cond.value.s))))}"
        pattern = ""
        for part in cond.value.s:
            if isinstance(part, str):
                pattern += "".join(f"!{one}" if one in "!%_" else one for one in fold(part))
            else:
                pattern += "%" if part is SpecialChars.WILDCARD_MULTI else "_"
        return f"{field} LIKE {literal(pattern)} ESCAPE '!'"

    def convert_condition_field_eq_val_num(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        """Translate a comparison with a number. A text field is converted to a number before."""
        return f"{self._number(cond.field)} = {cond.value}"

    def convert_condition_field_eq_val_bool(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        """Translate a comparison with true or false. A text field is compared as text."""
        assert isinstance(cond.value, SigmaBool)
        value = self.bool_values[cond.value.boolean]
        if TYPES.get(cond.field) == "boolean":
            return f"{self.escape_and_quote_field(cond.field)} = {value}"
        return f"lower({self._text(cond.field)}) = '{value}'"

    def convert_condition_field_eq_val_re(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        """Translate a regular expression."""
        assert isinstance(cond.value, SigmaRegularExpression)
        return f"regexp_like({self._text(cond.field)}, {literal(cond.value.escape([]))})"

    def convert_condition_field_compare_op_val(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        """Translate `lt`, `lte`, `gt` and `gte`."""
        assert isinstance(cond.value, SigmaCompareExpression)
        assert self.compare_operators is not None
        return f"{self._number(cond.field)} {self.compare_operators[cond.value.op]} {cond.value.number}"

    def convert_condition_val(self, cond: Any, state: ConversionState) -> Any:
        """Refuse a value without a field, because an event has no text as a whole."""
        raise SigmaFeatureNotSupportedByBackendError("a value needs the field that has it")

    def _text(self, field: str) -> str:
        expression = self.escape_and_quote_field(field)
        return expression if TYPES.get(field, "string") == "string" else f"cast({expression} AS VARCHAR(40))"

    def _number(self, field: str) -> str:
        expression = self.escape_and_quote_field(field)
        return f"try_cast({expression} AS DOUBLE)" if TYPES.get(field, "string") == "string" else expression
