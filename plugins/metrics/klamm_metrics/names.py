"""Prometheus names of MBeans, by the usual rules of the JMX exporter for Kafka.

`kafka.network:type=RequestChannel,name=RequestQueueSize` becomes `kafka_network_requestchannel_requestqueuesize`:
domain, type and name in lower case, everything else an underscore. A meter `…PerSec` loses that suffix and, like every
counter, ends in `_total`; `…Percent` becomes `…_percent`, and is a share of 1 as in Kafka.
"""

from __future__ import annotations

import re
from typing import Final

_MBEAN: Final = re.compile(r"([\w.]+):type=([\w-]+),name=([\w-]+)")
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def prometheus_name(mbean: str, kind: str) -> str:
    """Return the name of a metric; for a counter, without the `_total` of its samples. Raises ValueError for other
    text.
    """
    match = _MBEAN.fullmatch(mbean)
    if match is None:
        raise ValueError(f'"{mbean}" is not of the form DOMAIN:type=TYPE,name=NAME')
    domain, type_, name = match.groups()
    if kind == "counter":
        name = name.removesuffix("PerSec").removesuffix("-total").removesuffix("Total")
    elif name.endswith("Percent"):
        name = name.removesuffix("Percent") + "_percent"
    return _OTHER.sub("_", f"{domain}_{type_}_{name}".lower())


def exposed_name(mbean: str, kind: str) -> str:
    """Return the name in Prometheus queries; a histogram's samples have `_bucket`, `_sum` or `_count` after it."""
    return prometheus_name(mbean, kind) + ("_total" if kind == "counter" else "")


def label_name(label: str) -> str:
    """Return a label's name in Kafka's spelling, with underscores for characters that Prometheus does not allow."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", label)
    return f"_{name}" if name[:1].isdigit() or not name else name
