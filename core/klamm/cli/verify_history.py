"""The command `klamm verify-history`, which lists the violations of a broker's guarantees in a recorded history."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from klamm.config.plugin_registry import PluginRegistry
from klamm.logs.escaping import escape_control_characters
from klamm.testing.histories import Anomaly, History, HistoryError, check_history, read_history, unseen

_EXIT_ANOMALY = 1
_EXIT_UNREADABLE = 2


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """Return the exit code: 0 if the history has no anomaly, 1 if it has one, 2 if it cannot be read."""
    try:
        if options.history == "-":
            history = read_history(sys.stdin)
        else:
            with Path(options.history).open(encoding="utf-8") as file:
                history = read_history(file)
    except (HistoryError, OSError, UnicodeDecodeError) as error:
        print(f"klamm: {options.history}: {escape_control_characters(str(error))}", file=sys.stderr)
        return _EXIT_UNREADABLE
    found = check_history(history, at_least_once=options.at_least_once, write_cycles=options.write_cycles)
    for anomaly in found:
        print(_as_json(anomaly) if options.json else _as_text(anomaly, history))
    if not options.json:
        print(_summary(history, found))
    return _EXIT_ANOMALY if found else 0


def _as_json(anomaly: Anomaly) -> str:
    return json.dumps(
        {"anomaly": anomaly.name, "text": anomaly.text, "lines": anomaly.lines, "offsets": dict(anomaly.offsets)}
    )


def _as_text(anomaly: Anomaly, history: History) -> str:
    shown = [f"{anomaly.name}: {anomaly.text}"]
    shown += [f"  {line}: {history.texts[line - 1]}" for line in anomaly.lines]
    return "\n".join(map(escape_control_characters, shown))


def _summary(history: History, found: list[Anomaly]) -> str:
    unread = sum(unseen(history).values())
    rest = f"; {unread} acknowledged values that no client polled" if unread else ""
    return f"{len(history.operations)} operations, {len(found)} anomalies{rest}"
