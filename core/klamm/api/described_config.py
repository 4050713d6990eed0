"""`DescribedConfig`: one of the server's own settings, in the form that handler sets report."""

from __future__ import annotations

from typing import Any, NamedTuple


class DescribedConfig(NamedTuple):
    """One setting: Kafka's name, the value in force, the default, its Python type, its documentation.

    `dynamic` is "cluster-wide" or "per-broker" for a setting that `ServerContext.change_configs` can change, else
    empty. `per_node` is True for a setting of a listener, whose value may differ between the nodes of one process.
    """

    name: str
    value: Any
    default: Any
    kind: Any
    doc: str
    dynamic: str = ""
    per_node: bool = False
