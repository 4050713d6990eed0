"""The forms of a finding for services that do not read OCSF: a message for Slack, an event for PagerDuty, a mail."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape
from typing import Any, Final

from klamm import escape_control_characters
from klamm_spark.findings.ocsf import SEVERITY_IDS

SEVERITY_NAMES: Final = {number: name for name, number in SEVERITY_IDS.items()}
_PAGERDUTY_SEVERITIES: Final = {2: "info", 3: "warning", 4: "error", 5: "critical"}
_MAX_SUMMARY_CHARACTERS: Final = 1024


def one_line(finding: dict[str, Any]) -> str:
    """Return a finding as one line: time, severity, account, address, object, number of events, and message."""
    evidence = finding.get("evidences", [{}])[0]
    last = datetime.fromtimestamp(finding["end_time"] / 1000, UTC)
    words = [
        f"{last:%Y-%m-%dT%H:%M:%S}Z",
        SEVERITY_NAMES[finding["severity_id"]],
        evidence.get("actor", {}).get("user", {}).get("uid", ""),
        evidence.get("src_endpoint", {}).get("ip", ""),
        *(one["name"] for one in finding.get("resources", ())),
        f"x{finding['count']}",
        finding["message"],
    ]
    return escape_control_characters(" ".join(filter(None, words)))


def slack(finding: bytes) -> bytes:
    """Return the body for an incoming webhook of Slack."""
    found = json.loads(finding)
    # Escaped: otherwise a name that a client has chosen could notify a whole channel, or be a link.
    text = escape(one_line(found), quote=False)
    return json.dumps({"text": f"{text}\n{found['finding_info']['uid']}"}).encode()


def pagerduty(routing_key: str, finding: bytes) -> bytes:
    """Return an event for PagerDuty's Events API v2. A repeated event opens no second incident."""
    found = json.loads(finding)
    event = {
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": found["finding_info"]["uid"],
        "payload": {
            "summary": one_line(found)[:_MAX_SUMMARY_CHARACTERS],
            "source": found["metadata"]["product"]["name"],
            "severity": _PAGERDUTY_SEVERITIES[found["severity_id"]],
            "timestamp": datetime.fromtimestamp(found["end_time"] / 1000, UTC).isoformat(),
            "class": found["metadata"]["event_code"],
            "custom_details": found,
        },
    }
    return json.dumps(event).encode()


def mail(finding: bytes, sender: str, recipients: tuple[str, ...]) -> EmailMessage:
    """Return a mail. Its message id is the finding's uid."""
    found = json.loads(finding)
    message = EmailMessage()
    message["Subject"] = f"[{SEVERITY_NAMES[found['severity_id']]}] {escape_control_characters(found['message'])}"
    message["From"], message["To"] = sender, ", ".join(recipients)
    message["Date"] = format_datetime(datetime.fromtimestamp(found["time"] / 1000, UTC))
    message["Message-ID"] = f"<{found['finding_info']['uid']}@klamm>"
    message.set_content(f"{one_line(found)}\n\n{found['finding_info']['desc']}\n\n{json.dumps(found, indent=2)}\n")
    return message
