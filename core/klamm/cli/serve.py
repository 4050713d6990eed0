"""`klamm serve`. It runs on the main thread; with `--stop-at-eof`, another thread reads standard input."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klamm.config.plan import ServerPlan
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import ConfigError, Problem
from klamm.logs.output import start_logging

log = logging.getLogger("klamm.config")

_STDIN_BYTES: Final = 4096


def plan_of(
    options: argparse.Namespace, plugins: PluginRegistry, *, files: bool, secured: Sequence[str] = ()
) -> ServerPlan:
    """Return the plan that the arguments describe; `files` is passed to `load_plan`. Raises ConfigError.

    `secured` are the settings that `--secure` adds.
    """
    overrides = list(options.overrides)
    if options.log_level:
        overrides.append(f"server.log_level={options.log_level}")
    if getattr(options, "as_version", None):
        overrides.append(f'server.as_version="{options.as_version}"')
    file = Path(options.file) if options.file else None
    if file is not None:
        # The file may name functions of the operator, whose modules may be in the same folder as the file.
        folder = str(file.resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)
    if not getattr(options, "ephemeral", False):
        return load_plan(file, plugins, overrides, bind=options.bind, data_dir=options.data_dir, files=files)
    from klamm.testing.embedded import TEST_DEFAULTS

    return load_plan(
        file,
        plugins,
        [*secured, *overrides],
        bind=options.bind or (None if file is not None else "127.0.0.1:0"),
        data_dir=options.data_dir,
        files=files,
        defaults=TEST_DEFAULTS,
        more_parts={"filters": ["faults"], "observers": ["recording"], "extensions": ["control"]},
    )


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """Serve until a signal arrives, or with `--stop-at-eof` until standard input ends. Return the exit code."""
    if options.seed is not None and not options.ephemeral:
        raise ConfigError([Problem("", "--seed", "needs --ephemeral: keys and salts made from a seed can be guessed")])
    if not options.secure:
        return _serve(options, plugins)
    if not options.ephemeral or options.file:
        raise ConfigError([Problem("", "--secure", "needs --ephemeral, and cannot be used with a file")])
    import tempfile

    from klamm.testing.certificates import CertificateFiles
    from klamm.testing.secure import secure_settings

    with tempfile.TemporaryDirectory(prefix="klamm-tls-") as folder:
        files = CertificateFiles(folder)
        # `control.ca_file` comes after the line that names `control`: before it, the key is unknown.
        control = ['server.extensions=["control"]', f"control.ca_file={files.ca}"]
        return _serve(options, plugins, [*secure_settings(files), *control])


def _serve(options: argparse.Namespace, plugins: PluginRegistry, secured: Sequence[str] = ()) -> int:
    plan = plan_of(options, plugins, files=True, secured=secured)
    # Keep other users from reading records, credentials, audit events and log lines.
    os.umask(0o077)
    settings = plan.server
    try:
        start_logging(settings.log_format, settings.log_file, settings.levels_of_loggers)
    except OSError as error:
        raise ConfigError([Problem("", "server.log_file", f"{settings.log_file}: {error.strerror}")]) from error
    for warning in plan.warnings:
        log.warning("%s", warning)
    ready_file = Path(options.ready_file) if options.ready_file else None
    reload_plan = functools.partial(plan_of, options, plugins, files=False, secured=secured)
    if options.stop_at_eof:
        threading.Thread(target=_stop_at_eof, name="klamm-stdin", daemon=True).start()
    if plan.server.worker_count > 1:
        from klamm.workers.parent import run as serve_with_workers

        return serve_with_workers(plan, ready_file=ready_file, reload_plan=reload_plan)
    from klamm.server.serving import run as serve

    clock = None
    if options.ephemeral:
        from klamm.testing.clock import MovingClock

        clock = MovingClock()
    return serve(plan, ready_file=ready_file, reload_plan=reload_plan, clock=clock, seed=options.seed)


def _stop_at_eof() -> None:
    with contextlib.suppress(OSError, ValueError):
        while sys.stdin.buffer.read(_STDIN_BYTES):
            pass
    # The signal goes to the process, because a signal to this thread would not wake the main thread.
    os.kill(os.getpid(), signal.SIGTERM)
