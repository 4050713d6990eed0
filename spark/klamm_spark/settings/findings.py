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


def _check_smtp(server: str) -> str | None:
    host, _, port = server.rpartition(":")
    return None if not server or (host and port.isdecimal()) else f'"{server}" is not HOST:PORT'


def _check_kafka(properties: Any) -> str | None:
    return None if not properties or "bootstrap.servers" in properties else 'needs "bootstrap.servers"'


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectSettings:
    """`[audit.detect]`."""

    findings: Path | None = setting(
        None,
        doc="File that findings are appended to, one JSON line each. Its state is `FILE.state` in the same folder.",
    )
    rules: Path | None = setting(
        None, doc="Folder of Sigma rules and filters that run with klamm's own; needs `pip install 'klamm[sigma]'`."
    )
    ignore: dict[str, tuple[str, ...]] = setting(
        {},
        doc="Findings that are not wanted: by the name of a rule, patterns of accounts, addresses or objects, e.g. "
        '`{ brute_force = ["10.0.0.7"], deprecated_client = ["*"] }`.',
    )
    webhook: str = setting("", doc="URL that each finding is posted to.", check=_check_webhook)
    webhook_headers: dict[str, str] = setting(
        {}, doc='More headers of these posts, e.g. `{ Authorization = "…" }`.', secret=True
    )
    webhook_format: str = setting(
        "ocsf",
        choices=("ocsf", "slack", "pagerduty"),
        doc="Format of these posts: the finding as it is (`ocsf`), or a message for Slack or PagerDuty.",
    )
    pagerduty_routing_key: str = setting("", doc="Integration key of a service of PagerDuty, for its Events API v2.")
    email_to: tuple[str, ...] = setting((), doc="Addresses that each finding is mailed to, over `smtp`.")
    email_from: str = setting("klamm@localhost", doc="Sender of these mails.")
    smtp: str = setting("", check=_check_smtp, doc="`HOST:PORT` of the mail server; TLS is used if it offers STARTTLS.")
    smtp_user: str = setting("", doc="Login at the mail server, which then has to offer STARTTLS.")
    smtp_password_file: Path | None = setting(None, private=True, doc="File with its password.")
    topic: str = setting("", doc="Topic that each finding is produced to; needs confluent-kafka.")
    kafka: dict[str, str] = setting(
        {}, doc='Properties of the producer for `topic`: `{ "bootstrap.servers" = "…" }`.', check=_check_kafka
    )
    window_s: int = setting(
        7200,
        minimum=_MIN_WINDOW_S,
        doc="With `--follow`, length of the window that detections look at. If a finding gets no event for as long "
        "as this, its next event makes a new finding.",
    )
    poll_interval_ms: int = setting(
        1000, minimum=10, doc="With `--follow`, time between two looks at the spool or the lake."
    )
