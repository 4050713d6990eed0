"""The command `klamm audit detect`: its arguments and settings, and the runs over a spool or a lake."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import time
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from klamm.config import check_table, load_settings
from klamm_spark.errors import LakeError
from klamm_spark.findings.bodies import one_line
from klamm_spark.findings.detections import FOLDERS, Rules, by_severity, own_detections, read_detections
from klamm_spark.findings.log import FindingLog
from klamm_spark.findings.ocsf import detection_finding
from klamm_spark.findings.watch import LakeWatch, SpoolWatch, Watch, follow
from klamm_spark.lake.layout import Lake
from klamm_spark.queries.event_views import MEMORY_LIMIT, DuckDbViews, EventViews, Period
from klamm_spark.settings.findings import DetectSettings
from klamm_spark.stopping import until_a_signal

Say = Callable[[str], None]
_GIVEN: Final = ("rules", "findings", "webhook", "topic")


def add_command(
    commands: _SubParsersAction[ArgumentParser], places: list[ArgumentParser], since: Callable[[str], datetime]
) -> None:
    """Add the subcommand. `places` are parsers with the arguments for the spool and the lake."""
    detect = commands.add_parser("detect", parents=places, help="run the detections; print, keep and send what is new")
    detect.add_argument("--since", metavar="WHEN", type=since, help="e.g. 24h, 7d, 2026-01-31; default: everything")
    detect.add_argument(
        "-f", "--follow", action="store_true", help="continue with new events until interrupted; needs --findings"
    )
    detect.add_argument(
        "--rules", metavar="DIR", type=Path, help="a folder of Sigma rules and filters that run with klamm's own"
    )
    detect.add_argument("--findings", metavar="FILE", type=Path, help="append new findings to this file, each once")
    detect.add_argument("--webhook", metavar="URL", help="post new findings to this URL too")
    detect.add_argument(
        "--topic", metavar="NAME", help="produce them to this topic too; [audit.detect] kafka says where"
    )
    detect.add_argument(
        "--memory-limit",
        metavar="SIZE",
        type=_size,
        default=MEMORY_LIMIT,
        help=f"memory of DuckDB for a single run, e.g. 256MB; the rest goes to TMPDIR; default: {MEMORY_LIMIT}",
    )
    detect.add_argument("--format", choices=list(_FORMATS), default="text", help="what is printed; default: text")


def _size(text: str) -> str:
    """Return a size that DuckDB knows. Raises argparse.ArgumentTypeError."""
    if re.fullmatch(r"[1-9][0-9]{0,6}(MB|GB)", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, e.g. 256MB or 2GB")
    return text


def read_settings(options: argparse.Namespace) -> DetectSettings:
    """Return `[audit.detect]` of the file, overridden by arguments. Raises klamm.ConfigError, LakeError."""
    settings = DetectSettings()
    if options.file is not None:
        settings = load_settings(options.file, ("audit", "detect"), DetectSettings)
    given = {key: getattr(options, key) for key in _GIVEN if getattr(options, key) is not None}
    for key, message in check_table(DetectSettings, {key: str(value) for key, value in given.items()}):
        raise LakeError(f"--{key} {message}")
    settings = dataclasses.replace(settings, **given)
    if settings.findings is None and (options.follow or settings.webhook or settings.topic or settings.email_to):
        raise LakeError("findings that are followed or sent need a file too, so that each comes once: --findings FILE")
    return settings


def run(options: argparse.Namespace, place: Path | Lake, say: Say) -> int:
    """Run the detections over a spool or a lake, once or until a signal. Return the exit code. Raises LakeError."""
    settings = read_settings(options)
    if options.follow:
        return _follow(place, options, settings, say)
    with closing(DuckDbViews(place, Period(_microseconds(options.since)), options.memory_limit)) as views:
        return _detect_once(views, settings, options.format, say)


def _microseconds(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1_000_000)


def _now_us() -> int:
    return time.time_ns() // 1000


def _rules(settings: DetectSettings) -> Rules:
    """Return klamm's rules and the rules of the user's folder. That folder's filters apply to all rules. Raises
    LakeError.
    """
    detections = own_detections()
    if settings.rules is not None:
        from klamm_spark.findings.sigma import RULES, compiled

        detections = by_severity([*read_detections(FOLDERS[0]), *compiled(RULES, settings.rules)])
    return Rules(detections, settings.ignore)


def _detect_once(views: EventViews, settings: DetectSettings, format_name: str, say: Say) -> int:
    print_finding = _FORMATS[format_name]
    if settings.findings is None:
        for detection, finding in _rules(settings).findings(views):
            print_finding(detection_finding(detection, finding, _now_us()))
        return 0
    from klamm_spark.findings.outputs import Deliveries, outputs_of

    outputs = outputs_of(settings)
    with _opened(settings.findings, settings) as log:
        deliveries = Deliveries(log, outputs, say)
        for found in log.record(_rules(settings).findings(views), _now_us()):
            print_finding(found)
        return 0 if deliveries.run() else 1


def _follow(place: Path | Lake, options: argparse.Namespace, settings: DetectSettings, say: Say) -> int:
    from klamm_spark.findings.outputs import Deliveries, outputs_of

    assert settings.findings is not None
    rules, outputs, print_finding = _rules(settings), outputs_of(settings), _FORMATS[options.format]
    window_us, since_us = settings.window_s * 1_000_000, _microseconds(options.since)
    with until_a_signal() as stopped, _opened(settings.findings, settings) as log:
        deliveries = Deliveries(log, outputs, say)
        if isinstance(place, Path):
            since_us = max(since_us, log.seen_us - window_us)
            watch: Watch = SpoolWatch(
                place, log, deliveries, print_finding, window_us=window_us, since_us=since_us, rules=rules
            )
        else:
            watch = LakeWatch(
                place, log, deliveries, print_finding, window_us=window_us, since_us=since_us, rules=rules
            )
        say(f"findings of {place if isinstance(place, Path) else place.root} go to {settings.findings}")
        try:
            follow(
                watch,
                settings.poll_interval_ms / 1000,
                stopped,
                say=lambda problem: say(f"klamm audit: {problem}"),
            )
        finally:
            watch.close()
        return 1 if watch.problems else 0


@contextmanager
def _opened(path: Path, settings: DetectSettings) -> Iterator[FindingLog]:
    """Open the file of findings. Raises LakeError, also for a failure of the disk while the block runs."""
    try:
        log = FindingLog(path, settings.window_s * 1_000_000)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LakeError(f"the findings {path} cannot be read: {error}") from error
    try:
        with closing(log):
            yield log
    except OSError as error:
        raise LakeError(f"{error.filename or path}: {error.strerror or error}") from error


def _print_text(finding: dict[str, Any]) -> None:
    print(one_line(finding), flush=True)


def _print_ocsf(finding: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(finding) + "\n")
    sys.stdout.flush()


_FORMATS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {"text": _print_text, "ocsf": _print_ocsf}
