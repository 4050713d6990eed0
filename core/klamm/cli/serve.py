"""`klamm serve`."""

from __future__ import annotations

import argparse
import functools
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
    if not getattr(options, "ephemeral", False):
        return load_plan(file, plugins, overrides, bind=options.bind, data_dir=options.data_dir, files=files)
    from klamm.testing.embedded import TEST_DEFAULTS

    return load_plan(
        file,
        plugins,
        overrides,
        bind=options.bind or (None if file is not None else "127.0.0.1:0"),
        data_dir=options.data_dir,
        files=files,
        defaults=TEST_DEFAULTS,
        more_parts={"filters": ["faults"], "observers": ["recording"], "extensions": ["control"]},
    )


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
    ready_file = Path(options.ready_file) if options.ready_file else None
    reload_plan = functools.partial(plan_of, options, plugins, files=False)
    if plan.server.worker_count > 1:
        from klamm.workers.parent import run as serve_with_workers

        return serve_with_workers(plan, ready_file=ready_file, reload_plan=reload_plan)
    from klamm.server.serving import run as serve

    clock = None
    if options.ephemeral:
        from klamm.testing.clock import MovingClock

        clock = MovingClock()
    return serve(plan, ready_file=ready_file, reload_plan=reload_plan, clock=clock)
