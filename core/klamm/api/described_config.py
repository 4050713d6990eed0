"""`DescribedConfig`: one of the server's own settings, as handler sets report it."""

from __future__ import annotations

from typing import Any, NamedTuple


class DescribedConfig(NamedTuple):
    """One setting: Kafka's name, the value in force, the default, its Python type, its documentation.

    `dynamic` is "cluster-wide" or "per-broker" for a setting that `ServerContext.change_configs` takes, else empty.
    `per_node` says that the nodes of one process may differ in it: it is a listener's own.
    """

    name: str
    value: Any
    default: Any
    kind: Any
    doc: str
    dynamic: str = ""
    per_node: bool = False
