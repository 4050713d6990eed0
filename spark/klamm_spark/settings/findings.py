"""Settings of `klamm audit detect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from klamm import setting

_MIN_WINDOW_S: Final = 600


def _check_webhook(url: str) -> str | None:
    if not url or (urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname):
        return None
    return f'"{url}" is not a URL of http or https'


def _check_kafka(properties: Any) -> str | None:
    return None if not properties or "bootstrap.servers" in properties else 'needs "bootstrap.servers"'


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectSettings:
    """`[audit.detect]`."""

    findings: Path | None = setting(
        None, doc="File that findings are appended to, one JSON line each; beside it is the state `FILE.state`."
    )
    webhook: str = setting("", doc="URL that each finding is posted to.", check=_check_webhook)
    webhook_headers: dict[str, str] = setting({}, doc='More headers of these posts, e.g. `{ Authorization = "…" }`.')
    topic: str = setting("", doc="Topic that each finding is produced to; needs confluent-kafka.")
    kafka: dict[str, str] = setting(
        {}, doc='Properties of the producer for `topic`: `{ "bootstrap.servers" = "…" }`.', check=_check_kafka
    )
    window_s: int = setting(
        7200,
        minimum=_MIN_WINDOW_S,
        doc="With `--follow`, detections see the events of so long. A finding that had no event for so long is a new "
        "one when it comes again.",
    )
    poll_interval_ms: int = setting(
        1000, minimum=10, doc="With `--follow`, time between two looks at the spool or the lake."
    )
