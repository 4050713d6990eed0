"""The command `klamm diff`, which lists the changes that a reload applies, and those that need a new start."""

from __future__ import annotations

import argparse
from pathlib import Path

from klamm.config.differences import differences, replaces_workers
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """Print a line for each table with other values. Return 0, or 1 if a change takes effect only at the next start.

    Raises ConfigError or PluginError.
    """
    old, new = (load_plan(Path(one), plugins) for one in (options.old, options.new))
    waits, replaced = False, replaces_workers(old, new)
    for one in differences(old, new):
        when = one.when(replaced)
        waits = waits or not when.startswith("now")
        print(f"{one}: takes effect {when}")
    return 1 if waits else 0
