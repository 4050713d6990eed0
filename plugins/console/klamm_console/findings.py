"""`Findings`: what the rules of `klamm audit detect` find in the audit's spool.

The command runs as a process of its own, with a lower priority and limits of memory and time, because reading a spool
takes seconds of processor time, and the server's threads need the processor.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from klamm import ServerServices
from klamm_console.trail import spool_of

HOURS: Final = (1, 24, 168)
"""The periods that a user can choose."""
_WITHIN_S: Final = 60.0
_MEMORY: Final = "256MB"
_FRESH_NS: Final = 60 * 1_000_000_000
_MAX_BYTES: Final = 4 << 20
_MAX_PROBLEM_BYTES: Final = 4096
_NICE: Final = 10
_SEVERITIES: Final = {2: "low", 3: "medium", 4: "high", 5: "critical"}


class _Found(NamedTuple):
    at_ns: int
    hours: int
    content: dict[str, Any]


class Findings:
    """Any thread may call it; calls wait for each other. Results of the last minute are returned again."""

    def __init__(self, services: ServerServices, within_s: float = _WITHIN_S) -> None:
        self._services = services
        self._within_s = within_s
        # Held while a process runs, so that there is only one.
        self._lock = threading.Lock()
        self._last: _Found | None = None
        # Protects the process below, which `close` ends.
        self._process_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def look(self, hours: int) -> dict[str, Any]:
        """Return the findings of the last hours, the gravest first, with the time when the command ran.

        If it cannot run, e.g. because DuckDB is not installed, `problem` has the reason. Raises TimeoutError if other
        calls keep it busy.
        """
        if not self._lock.acquire(timeout=self._within_s):
            raise TimeoutError("the rules still run for others; try again later")
        try:
            last, now_ns = self._last, self._services.clock.monotonic_ns()
            if last is None or last.hours != hours or now_ns - last.at_ns >= _FRESH_NS:
                found: dict[str, Any] = {"findings": [], "problem": "", "is_cut": False, "hours": hours}
                found["time_ms"] = self._services.clock.wall_ms()
                spool = spool_of(self._services)
                found |= self._run(spool, hours) if spool else {"problem": "no listener has the observer audit"}
                last = self._last = _Found(self._services.clock.monotonic_ns(), hours, found)
            return last.content
        finally:
            self._lock.release()

    def _run(self, spool: str, hours: int) -> dict[str, Any]:
        # With `-P`, Python does not look for modules in the working directory, to which others may have access.
        command = [sys.executable, "-P", "-m", "klamm", "audit", "detect", "--spool", spool, "--since", f"{hours}h"]
        # A process that is killed leaves its temporary files, which are as large as the spool.
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory(prefix="klamm-findings-") as folder:
            process = self._start([*command, "--format", "ocsf", "--memory-limit", _MEMORY], errors, folder)
            if process is None:
                return {"problem": "the server stops"}
            late = threading.Event()

            def end() -> None:
                late.set()
                process.kill()

            timer = threading.Timer(self._within_s, end)
            timer.start()
            try:
                with process:
                    assert process.stdout is not None
                    content = process.stdout.read(_MAX_BYTES)
                    is_cut = bool(process.stdout.read(1))
                    if is_cut:
                        process.kill()
            finally:
                timer.cancel()
            # A process that is ended, or fails, may leave half a line.
            rows = [*_rows(content[: content.rfind(b"\n") + 1].splitlines())]
            if late.is_set():
                problem = (
                    f"the rules ran for {self._within_s:g} s and were ended: choose fewer hours, or use the command"
                )
                return {"problem": problem, "findings": rows}
            if process.returncode and not is_cut:
                errors.seek(0)
                text = errors.read(_MAX_PROBLEM_BYTES).decode("utf-8", "replace").strip()
                return {"problem": text or f"klamm audit detect has ended with {process.returncode}", "findings": rows}
            return {"findings": rows, "is_cut": is_cut}

    def _start(self, command: list[str], errors: BinaryIO, folder: str) -> subprocess.Popen[bytes] | None:
        with self._process_lock:
            if self._is_closed:
                return None
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "TMPDIR": folder},
            )
        # Windows has no such priorities, and the process may have ended.
        with contextlib.suppress(AttributeError, OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        return process

    def close(self) -> None:
        """End a process that runs. No further one starts."""
        with self._process_lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()


def _rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        found = json.loads(line)
        evidence = found.get("evidences", [{}])[0]
        yield {
            "severity": _SEVERITIES[found["severity_id"]],
            "title": found["finding_info"]["title"],
            "about": found["finding_info"]["desc"],
            "message": found["message"],
            "principal": evidence.get("actor", {}).get("user", {}).get("uid", ""),
            "address": evidence.get("src_endpoint", {}).get("ip", ""),
            "objects": [each["name"] for each in found.get("resources", ())],
            "count": found["count"],
            "first_ms": found["start_time"],
            "last_ms": found["end_time"],
        }
