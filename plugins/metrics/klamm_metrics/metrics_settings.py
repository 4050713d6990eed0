"""Settings of the extension `prometheus`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm import setting
from klamm.config import check_host_port

_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def _check_labels(labels: dict[str, str]) -> str | None:
    for name in labels:
        if not _LABEL.fullmatch(name) or name == "le":
            return f'"{name}" cannot be the name of a label'
    return None


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """`[prometheus]`."""

    bind: str = setting(
        "127.0.0.1:9404",
        doc="HOST:PORT of /metrics, /live, /ready and /started, and of /connections, which needs the token if there "
        "is one. Every client that can connect can read them.",
        check=check_host_port,
    )
    token_file: Path | None = setting(
        None,
        doc="File with the token that lets a client close and move connections, and is then needed to look at them "
        "too; metrics need none. Read again at SIGHUP.",
        private=True,
    )
    include: tuple[str, ...] = setting(
        ("*",), doc="Patterns of Prometheus names, with * and ?; only these are exported, e.g. `kafka_network_*`."
    )
    exclude: tuple[str, ...] = setting((), doc="Patterns of Prometheus names that are not exported.")
    labels: dict[str, str] = setting({}, doc="Labels that every metric gets, e.g. the cluster.", check=_check_labels)
    process: bool = setting(True, doc="Export metrics of the process too: memory, processor time, file descriptors.")
