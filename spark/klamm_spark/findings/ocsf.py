"""Findings in OCSF 1.8.0: Detection Finding, class 2004. `FindingLog` and `klamm audit detect` call it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from klamm_spark.findings.detections import Detection, Finding

CLASS_UID: Final = 2004
_VERSION: Final = "1.8.0"
_CREATE, _NEW, _RULE = 1, 1, 1
SEVERITY_IDS: Final = {"low": 2, "medium": 3, "high": 4, "critical": 5}
_MAX_COUNT: Final = (1 << 31) - 1


def uid_of(key: Sequence[str], finding: Finding) -> str:
    """Return the id of a finding, 32 hexadecimal digits. It depends on the events that the finding has when it is
    recorded.
    """
    return hashlib.sha256(json.dumps([*key, finding.first_event, finding.last_event]).encode()).hexdigest()[:32]


def detection_finding(detection: Detection, finding: Finding, found_us: int) -> dict[str, Any]:
    """Return a finding as OCSF. `found_us` is the wall-clock time at which it was found."""
    key = detection.key_of(finding)
    uid = uid_of(key, finding)
    times = {"first_seen_time": finding.first_us // 1000, "last_seen_time": finding.last_us // 1000}
    rendered: dict[str, Any] = {
        "metadata": {
            "version": _VERSION,
            "product": {"name": "klamm", "vendor_name": "klamm"},
            "uid": uid,
            "event_code": detection.name,
        },
        "time": found_us // 1000,
        "category_uid": CLASS_UID // 1000,
        "class_uid": CLASS_UID,
        "activity_id": _CREATE,
        "type_uid": CLASS_UID * 100 + _CREATE,
        "severity_id": SEVERITY_IDS[detection.severity],
        "status_id": _NEW,
        "is_alert": True,
        "message": f"{detection.title}: {finding.detail}",
        "count": min(finding.events, _MAX_COUNT),
        "start_time": times["first_seen_time"],
        "end_time": times["last_seen_time"],
        "finding_info": {
            "uid": uid,
            "title": detection.title,
            "desc": detection.doc,
            "created_time": found_us // 1000,
            **times,
            "related_events": [
                {"uid": event_id} for event_id in dict.fromkeys((finding.first_event, finding.last_event))
            ],
            "analytic": {"type_id": _RULE, "uid": detection.name, "name": detection.title},
        },
        "unmapped": {"key": list(key), "first_us": finding.first_us, "last_us": finding.last_us},
    }
    evidence = _evidence(finding)
    if evidence:
        rendered["evidences"] = [evidence]
    if finding.object:
        rendered["resources"] = [{"name": finding.object}]
    return rendered


def _evidence(finding: Finding) -> dict[str, Any]:
    evidence: dict[str, Any] = {}
    if finding.principal:
        name = finding.principal.partition(":")[2] or finding.principal
        evidence["actor"] = {"user": {"name": name, "uid": finding.principal}}
    if finding.address:
        evidence["src_endpoint"] = {"ip": finding.address}
    return evidence
