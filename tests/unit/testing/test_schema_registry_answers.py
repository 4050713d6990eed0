"""Compares klamm's Schema Registry with the answers of Confluent's to the same requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klamm.testing import EmbeddedServer
from tests.registry_requests import Asked, answers, recorded, requests

pytest.importorskip("grpc_tools", reason="needs klamm[registry]")

READ_ONLY = {"error_code": 42205, "message": "Subject last-mode in context  is in read-only mode"}


def _without_schema(asked: Asked, theirs: Any, mine: Any) -> bool:
    if (asked.method, mine[0]) != ("POST", 200) or mine[1].get("schemaType") != "PROTOBUF":
        return False
    return {**mine[1], "schema": theirs[1]["schema"]} == theirs[1]


def _without(key: str, found: Any) -> Any:
    return {name: each for name, each in found.items() if name != key}


# docs/schema-registry.md explains each of these under "Differences from Confluent's".
DIFFERENCES: dict[str, Callable[[Asked, Any, Any], bool]] = {
    "a request that has an error there is answered": lambda asked, theirs, mine: (
        theirs[0] == 500 and 400 <= mine[0] < 500
    ),
    "the answer to a registration of Protocol Buffers has no schema": _without_schema,
    "the text of Protocol Buffers is printed from the descriptor": lambda asked, theirs, mine: (
        asked.path == "/subjects/both-proto/versions/1" and "  .r.Order one = 1;" in mine[1]["schema"]
    ),
    "protoc refuses more": lambda asked, theirs, mine: "last-proto" in asked.path and mine[1]["error_code"] == 42201,
    "a path may have empty parts": lambda asked, theirs, mine: asked.path == "/subjects//versions" and theirs[0] == 400,
    "NaN is not JSON": lambda asked, theirs, mine: "NaN" in str(asked.body) and mine[1]["error_code"] == 400,
    "READONLY_OVERRIDE is above the mode of a subject": lambda asked, theirs, mine: mine[1] == READ_ONLY,
    "an id whose version was imported again with another id is gone": lambda asked, theirs, mine: (
        asked.path == "/schemas/ids/700" and mine[1]["error_code"] == 40403
    ),
    "rules are kept": lambda asked, theirs, mine: "ruleSet" in mine[1] and _without("ruleSet", mine[1]) == theirs[1],
    "empty metadata is none": lambda asked, theirs, mine: (
        theirs[1].get("metadata") == {} and _without("metadata", theirs[1]) == mine[1]
    ),
    "an answer to a registration has no `deleted`": lambda asked, theirs, mine: (
        asked.method == "POST" and "deleted" in theirs[1] and _without("deleted", theirs[1]) == mine[1]
    ),
}


def test_answers_equal_those_of_confluents_registry() -> None:
    with EmbeddedServer(schema_registry=True) as server:
        found = answers(server.schema_registry_url)
    used = set()
    unexplained = []
    for asked, theirs, mine in zip(requests(), recorded(), found, strict=True):
        if theirs == mine:
            continue
        reason = next((name for name, applies in DIFFERENCES.items() if applies(asked, theirs, mine)), None)
        used.add(reason)
        if reason is None:
            unexplained.append((asked, theirs, mine))
    assert unexplained == []
    assert used == set(DIFFERENCES)
    assert len(found) > 800
