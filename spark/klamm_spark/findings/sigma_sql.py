"""Queries of Sigma rules for DuckDB and Spark. They return the columns of a finding.

Each rule becomes a query with a row for each match. A rule that a correlation uses does so too. The columns are:

- `time_us`, and the events that began and completed the match: `began` and `ended`, each with 20 digits of time and the
  event's id
- `n`, the number of events, and `total`, the number of events from the first row on
- `amount`, the number in the finding's text
- `principal`, `address`, `object`, and the values by which the rule groups (`k0`, `k1`, …)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sigma.correlations import (
    SigmaCorrelationCondition,
    SigmaCorrelationConditionOperator,
    SigmaCorrelationRule,
    SigmaCorrelationType,
    SigmaRuleReference,
)
from sigma.exceptions import SigmaCorrelationRuleError, SigmaFeatureNotSupportedByBackendError
from sigma.rule import SigmaRule

from klamm_spark.findings.sigma_fields import RuleCondition, literal

_VALUES: Final = ("time_us", "began", "ended", "n", "total", "amount", "principal", "address", "object")
_MOMENT: Final = "concat(lpad(cast(e.time_us AS VARCHAR(20)), 20, '0'), e.event_id)"
_SAME: Final = "CASE WHEN min({0}){1} = max({0}){1} THEN min({0}){1} ELSE {2} END"
_PART: Final = re.compile(r"\{([\w.-]+)\}")
_SEVERAL: Final = "concat(min(object){}, ' and others')"
_UNION: Final = "\n  UNION ALL\n"
_BEFORE: Final = "RANGE BETWEEN {} PRECEDING AND CURRENT ROW"
_OPERATORS: Final = {
    SigmaCorrelationConditionOperator.LT: "<",
    SigmaCorrelationConditionOperator.LTE: "<=",
    SigmaCorrelationConditionOperator.GT: ">",
    SigmaCorrelationConditionOperator.GTE: ">=",
    SigmaCorrelationConditionOperator.EQ: "=",
    SigmaCorrelationConditionOperator.NEQ: "<>",
}
_TYPES: Final = SigmaCorrelationType
_MEASURES: Final = {
    _TYPES.EVENT_COUNT: "sum(n) OVER recent",
    _TYPES.VALUE_SUM: "sum(try_cast(v AS DOUBLE)) OVER recent",
    # A value counts from its first row on until the time span after it, or until the value comes again.
    _TYPES.VALUE_COUNT: "sum(step) OVER ever",
}
_TEMPORAL: Final = (_TYPES.TEMPORAL, _TYPES.TEMPORAL_ORDERED)


def query_of(rule: SigmaRule | SigmaCorrelationRule, about: Mapping[str, object]) -> str:
    """Return the query of a rule. `about` is the rule's section `klamm`. Raises SigmaError."""
    detail = str(about.get("detail", "{n} events"))
    shown = list(dict.fromkeys(name for name in _PART.findall(detail) if name != "n"))
    events, amount = "sum(n)", "max(amount)"
    if isinstance(rule, SigmaRule):
        rows, groups = _matches(rule, shown=shown), ["principal", "address", "object"]
        amount = "sum(amount)"
    else:
        if shown:
            raise SigmaCorrelationRuleError(f"the detail of a correlation has {{n}}, not {{{shown[0]}}}")
        keys = rule.group_by or []
        rows, groups = _rows(rule, keys), _names(keys)
        if rule.type in _TEMPORAL:
            groups += ["principal", "address"]
        else:
            events = "max(total) - min(total - n)"
    at = "cast(substring({}, 1, 20) AS BIGINT)"
    return (
        f"SELECT {_SAME.format('principal', '', repr(''))} AS principal, min(address) AS address,\n"
        f"  {_SAME.format('object', '', _SEVERAL.format(''))} AS object, cast({events} AS BIGINT) AS events,\n"
        f"  {at.format('min(began)')} AS first_us, {at.format('max(ended)')} AS last_us,\n"
        f"  substring(min(began), 21) AS first_event, substring(max(ended), 21) AS last_event,\n"
        f"  {_detail(detail, amount, shown)} AS detail\n"
        f"FROM (\n{rows}\n) found GROUP BY {', '.join(groups)}"
    )


def _detail(text: str, amount: str, shown: Sequence[str]) -> str:
    parts = []
    for number, part in enumerate(_PART.split(text)):
        if number % 2 == 0:
            parts.append(literal(part))
        elif part == "n":
            parts.append(f"cast(cast({amount} AS BIGINT) AS VARCHAR(20))")
        else:
            parts.append(f"coalesce(min(s{shown.index(part)}), '')")
    return f"concat({', '.join(part for part in parts if part != repr(''))}, '')"


def _span_us(rule: SigmaCorrelationRule) -> int:
    return rule.timespan.seconds * 1_000_000


def _names(keys: Sequence[str]) -> list[str]:
    return [f"k{number}" for number in range(max(1, len(keys)))]


def _rows(rule: SigmaRule | SigmaCorrelationRule, keys: Sequence[str], value: str = "") -> str:
    """Return the query of a rule's rows. `keys` are the fields for the key columns; `value` is the field for `v`, if
    any.
    """
    if isinstance(rule, SigmaRule):
        return _matches(rule, keys, value)
    grouped = rule.group_by or []
    for key in [*keys, value]:
        if key and key not in grouped:
            raise SigmaCorrelationRuleError(f'"{key}" is not among what the rule "{rule.name}" groups by')
    rows = _temporal(rule) if rule.type in _TEMPORAL else _counted(rule)
    columns = [f"k{grouped.index(key)} AS {name}" for key, name in zip(keys, _names(keys), strict=False)]
    columns = columns or ["'' AS k0"]
    if value:
        columns.append(f"k{grouped.index(value)} AS v")
    return f"SELECT {', '.join([*_VALUES, *columns])} FROM (\n{rows}\n) c"


def _matches(rule: SigmaRule, keys: Sequence[str] = (), value: str = "", shown: Sequence[str] = ()) -> str:
    condition = RuleCondition()
    about = rule.custom_attributes.get("klamm", {})
    condition.convert_rule(rule)
    where = [f"({one})" for one in rule.get_conversion_result()]
    column = condition.escape_and_quote_field
    expressions = [column(key) for key in keys]
    count = f"coalesce({column(about['count'])}, 0)" if "count" in about else "greatest(e.requests, 1)"
    at = "e.listener" if condition.tables() == "events e" else "r.name"
    at = column(about["object"]) if "object" in about else at
    who = column(about.get("principal", "principal"))
    columns = [
        f"e.time_us, {_MOMENT} AS began, {_MOMENT} AS ended, greatest(e.requests, 1) AS n, 0 AS total",
        f"{count} AS amount, coalesce({who}, '') AS principal",
        f"coalesce(e.client_address, '') AS address, coalesce({at}, '') AS object",
        *(f"{one} AS k{number}" for number, one in enumerate(expressions or ["''"])),
        *([f"{column(value)} AS v"] if value else []),
        *(f"cast({column(name)} AS VARCHAR(1000)) AS s{number}" for number, name in enumerate(shown)),
    ]
    present = "".join(f" AND {one} IS NOT NULL" for one in expressions)
    return f"SELECT {', '.join(columns)}\n  FROM {condition.tables()}\n  WHERE ({' OR '.join(where)}){present}"


def _field_of(rule: SigmaCorrelationRule, reference: SigmaRuleReference, key: str) -> str:
    """Return a rule's field for a key of the correlation. The key may be an alias of that field."""
    for alias in rule.aliases:
        if alias.alias == key:
            for named, field in alias.mapping.items():
                if named.reference == reference.reference:
                    return field
            raise SigmaCorrelationRuleError(f'the alias "{key}" has no field of the rule "{reference.reference}"')
    return key


def _parts(rule: SigmaCorrelationRule, value: str = "") -> list[str]:
    keys = rule.group_by or []
    return [
        _rows(one.rule, [_field_of(rule, one, key) for key in keys], value and _field_of(rule, one, value))
        for one in rule.rules or ()
    ]


def _counted(rule: SigmaCorrelationRule) -> str:
    """Return the rows before which, within the time span, enough events, values or sums have come."""
    condition, measure = rule.condition, _MEASURES.get(rule.type)
    if measure is None or not isinstance(condition, SigmaCorrelationCondition):
        raise SigmaFeatureNotSupportedByBackendError(f"correlations of type {rule.type.name.lower()} are not supported")
    field = "" if rule.type is _TYPES.EVENT_COUNT else condition.fieldref or ""
    if not isinstance(field, str):
        raise SigmaFeatureNotSupportedByBackendError("a correlation counts the values of one field")
    names, span_us = ", ".join(_names(rule.group_by or [])), _span_us(rule)
    rows = _UNION.join(_parts(rule, field))
    if rule.type is _TYPES.VALUE_COUNT:
        rows = _steps(rows, names, span_us)
    window = f"PARTITION BY {names} ORDER BY time_us"
    principal = _SAME.format("principal", " OVER recent", "''")
    object = _SAME.format("object", " OVER recent", _SEVERAL.format(" OVER recent"))
    return (
        f"SELECT * FROM (SELECT time_us, min(began) OVER recent AS began, ended, sum(n) OVER recent AS n,\n"
        f"  sum(n) OVER ever AS total, {measure} AS amount, {principal} AS principal,\n"
        f"  min(address) OVER recent AS address, {object} AS object, {names}\nFROM (\n{rows}\n) r\n"
        f"WINDOW recent AS ({window} {_BEFORE.format(span_us)}),\n"
        f"  ever AS ({window} {_BEFORE.format('UNBOUNDED')})) w\n"
        f"WHERE ended IS NOT NULL AND amount {_OPERATORS[condition.op]} {condition.count}"
    )


def _steps(rows: str, names: str, span_us: int) -> str:
    """Return two rows for each value: the first adds 1; the second subtracts 1 at the end of the value's time span."""
    until = f"time_us + {span_us + 1}"
    return (
        f"SELECT {', '.join(_VALUES)}, {names}, 1 AS step FROM (\n{rows}\n) p WHERE v IS NOT NULL{_UNION}"
        f"SELECT least({until}, coalesce(next_us, {until})) AS time_us, NULL AS began, NULL AS ended, 0 AS n,\n"
        f"  0 AS total, 0 AS amount, NULL AS principal, NULL AS address, NULL AS object, {names}, -1 AS step FROM (\n"
        f"SELECT time_us, {names}, lead(time_us) OVER (PARTITION BY {names}, v ORDER BY time_us) AS next_us\n"
        f"FROM (\n{rows}\n) q WHERE v IS NOT NULL) l"
    )


def _temporal(rule: SigmaCorrelationRule) -> str:
    """Return the rows that complete a correlation.

    The column `state` has the time at which its first part was complete, and the event with which that part began.
    """
    if not isinstance(rule.condition, SigmaCorrelationCondition) or not rule.rules:
        raise SigmaFeatureNotSupportedByBackendError("a correlation in time needs rules; it takes no condition in text")
    names, span_us = ", ".join(_names(rule.group_by or [])), _span_us(rule)
    window = f"PARTITION BY {names} ORDER BY time_us"
    state = "concat(lpad(cast(time_us AS VARCHAR(20)), 20, '0'), began) AS state"
    rows = _UNION.join(
        f"SELECT p.*, {number} AS part, {state} FROM (\n{one}\n) p" for number, one in enumerate(_parts(rule))
    )
    join = _in_order if rule.type is _TYPES.TEMPORAL_ORDERED else _in_any_order
    rows = join(rows, f"({window} {_BEFORE.format('UNBOUNDED')})", f"{', '.join(_VALUES)}, {names}", len(rule.rules))
    recent = f"({window} {_BEFORE.format(span_us)})"
    return (
        f"SELECT time_us, substring(state, 21) AS began, ended, n, total, most AS amount, principal, address, object,\n"
        f"  {names} FROM (SELECT t.*, max(t.amount) OVER {recent} AS most FROM (\n{rows}\n) t) z\n"
        f"WHERE is_last AND state IS NOT NULL AND time_us - cast(substring(state, 1, 20) AS BIGINT) <= {span_us}"
    )


def _in_order(rows: str, window: str, columns: str, parts: int) -> str:
    """Return the rows of all parts. Each row's state is that of the latest row of the part before it."""
    for number in range(1, parts):
        latest = f"max(CASE WHEN part = {number - 1} THEN state END) OVER {window}"
        rows = (
            f"SELECT {columns}, part, CASE WHEN part = {number} THEN {latest} ELSE state END AS state\n"
            f"FROM (\n{rows}\n) t{number}"
        )
    return f"SELECT {columns}, part = {parts - 1} AS is_last, state FROM (\n{rows}\n) o"


def _in_any_order(rows: str, window: str, columns: str, parts: int) -> str:
    """Return the rows of all parts. If each part has a state, the row's state is the earliest of the latest states."""
    latest = [f"max(CASE WHEN part = {number} THEN state END) OVER {window} AS m{number}" for number in range(parts)]
    names = [f"m{number}" for number in range(parts)]
    known = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return (
        f"SELECT {columns}, {known} AS is_last, least({', '.join([*names, names[0]])}) AS state\n"
        f"FROM (SELECT {columns}, {', '.join(latest)} FROM (\n{rows}\n) u) o"
    )
