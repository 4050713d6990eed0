"""The command `klamm check`, which reports the problems of a configuration without binding a port."""

from __future__ import annotations

import argparse
import sys

from klamm.cli.doctor import folder_problem, folders_of
from klamm.cli.serve import plan_of
from klamm.config.plugin_registry import PluginRegistry


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """Check the configuration, print its problems, and return the exit code.

    The code is 0 if the configuration is valid, 1 with `--strict` if there is a warning. Raises ConfigError or
    PluginError. Everything runs on the caller's thread.
    """
    plan = plan_of(options, plugins, files=True)
    parts = [plan.request_scheduler, *plan.api_sets.values(), *plan.extensions]
    for listener in plan.listeners:
        single = (listener.transport, listener.authenticator, listener.authorizer, listener.assigner)
        parts += [part for part in (*single, *listener.many) if part]
    for part in parts:
        part.load()
    names = ", ".join(listener.name for listener in plan.listeners)
    warnings = [str(warning) for warning in plan.warnings]
    warnings += [f"server.{key}: {problem}" for key, folder in folders_of(plan) if (problem := folder_problem(folder))]
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{options.file or 'built-in settings'}: ok ({names})")
    return 1 if warnings and options.strict else 0
