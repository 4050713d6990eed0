"""`read_sql`: reads a file with one SQL query. Its first lines have the form `-- key: value`; the query has
placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from klamm_spark.events.event import REQUEST_OUTCOMES
from klamm_spark.requests.state_changes import ADMINISTRATIVE

_HEAD: Final = re.compile(r"-- ([a-z]+): (.*)")
_NOT_A_NUMBER: Final = 999
_BASELINE: Final = {
    "apache-kafka-java": (2, 1),
    "librdkafka": (1, 8, 2),
    "kafkajs": (1, 15, 0),
    "sarama": (1, 30, 1),
    "kafka-python": (2, 0, 2),
}
"""The oldest versions of clients that Kafka 4.0 supports, by KIP-896."""


class SqlFile(NamedTuple):
    """The content of a file: its head, and its query with the values of the placeholders."""

    name: str
    head: Mapping[str, str]
    sql: str


def read_sql(path: Path, *required: str) -> SqlFile:
    """Read a file whose head must have these keys. Raises OSError, ValueError."""
    text = path.read_text(encoding="utf-8")
    head = dict(_HEAD.findall(text))
    missing = [key for key in required if key not in head]
    if missing:
        raise ValueError(f"{path}: needs a line `-- {missing[0]}: …`")
    for name, value in _PLACEHOLDERS.items():
        text = text.replace(f"{{{name}}}", value)
    return SqlFile(path.stem, head, text)


def _sum_if(name: str, condition: str) -> str:
    return f"coalesce(sum(CASE WHEN {condition} THEN requests END), 0) AS `{name}`"


_OUTCOMES: Final = ", ".join(
    (
        _sum_if("requests", "kind = 'request'"),
        *(_sum_if(outcome, f"kind = 'request' AND outcome = '{outcome}'") for outcome in REQUEST_OUTCOMES),
    )
)
COUNTS: Final = ", ".join(
    (
        _OUTCOMES,
        _sum_if("authenticated", "kind = 'authentication' AND action = 'success'"),
        _sum_if(
            "authentication failures", "kind = 'authentication' AND action IN ('failure', 'reauthentication_failure')"
        ),
        _sum_if("connections", "kind = 'connection' AND action = 'opened'"),
        _sum_if("connections refused", "kind = 'connection' AND action = 'refused'"),
    )
)
"""The counts of a group of events, as columns. Names with blanks have Spark's quotes."""


def _older(baseline: tuple[int, ...]) -> str:
    # A missing number counts as 0, so "2.1" is as new as "2.1.0". A text without numbers is not old.
    numbers = [
        f"cast(coalesce(nullif(regexp_extract(client_software_version, '^v?{'[0-9]+[.]' * place}([0-9]+)', 1), ''), "
        f"'{0 if place else _NOT_A_NUMBER}') AS BIGINT)"
        for place in range(len(baseline))
    ]
    cases = []
    for place, wanted in enumerate(baseline):
        equal = [f"{number} = {value}" for number, value in zip(numbers[:place], baseline, strict=False)]
        cases.append(" AND ".join([*equal, f"{numbers[place]} < {wanted}"]))
    return " OR ".join(f"({case})" for case in cases)


_DEPRECATED: Final = " OR ".join(
    f"(lower(client_software_name) = '{name}' AND ({_older(baseline)}))" for name, baseline in _BASELINE.items()
)
_PLACEHOLDERS: Final = {
    "administrative": ", ".join(map(str, sorted(ADMINISTRATIVE))),
    "counts": COUNTS,
    "deprecated": _DEPRECATED,
    "outcomes": _OUTCOMES,
}
"""The values of the placeholders.

`administrative` are the numbers of APIs that change topics, ACLs and so on. `counts` and `outcomes` are columns.
`deprecated` is the condition for clients that are older than the baseline of KIP-896.
"""
