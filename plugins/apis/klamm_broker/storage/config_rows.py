"""Rows of the table `configs`: the dynamic configs of a topic, a broker, a group or a client metrics subscription."""

from __future__ import annotations

from collections.abc import Mapping

from klamm_broker.storage.store import Statement


def delete_configs(resource_type: int, name: str) -> Statement:
    """Return the statement that deletes all configs of a resource."""
    return ("DELETE FROM configs WHERE resource_type = ? AND resource_name = ?", (resource_type, name))


def replace_configs(resource_type: int, name: str, values: Mapping[str, str]) -> list[Statement]:
    """Return the statements that replace all configs of a resource with these."""
    insert = "INSERT INTO configs (resource_type, resource_name, name, value) VALUES (?, ?, ?, ?)"
    rows = [(insert, (resource_type, name, key, value)) for key, value in values.items()]
    return [delete_configs(resource_type, name), *rows]
