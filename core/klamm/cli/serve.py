"""`klamm serve`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from klamm.config.plan import ServerPlan
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.logs.escaping import EscapingFormatter

log = logging.getLogger("klamm.config")


def plan_of(options: argparse.Namespace, plugins: PluginRegistry, *, files: bool) -> ServerPlan:
    """The plan of the arguments; `files` as for `load_plan`. Raises ConfigError."""
    overrides = list(options.overrides)
    if options.log_level:
        overrides.append(f"server.log_level={options.log_level}")
    if getattr(options, "as_version", None):
        overrides.append(f'server.as_version="{options.as_version}"')
    file = Path(options.file) if options.file else None
    if file is not None:
        # A file may name functions of the operator's own; their modules may stand beside it.
        folder = str(file.resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)
    return load_plan(file, plugins, overrides, bind=options.bind, data_dir=options.data_dir, files=files)


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """Serve until a signal ends it."""
    plan = plan_of(options, plugins, files=True)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EscapingFormatter())
    logging.basicConfig(level=plan.server.log_level, handlers=[handler])
    for warning in plan.warnings:
        log.warning("%s", warning)
    # Records, credentials and audit events must not be readable for other users.
    os.umask(0o077)
    from klamm.server.serving import run as serve

    ready_file = Path(options.ready_file) if options.ready_file else None
    return serve(plan, ready_file=ready_file, reload_plan=lambda: plan_of(options, plugins, files=False))
