"""The command `klamm plugins`, which lists the installed providers, and the listeners that use them."""

from __future__ import annotations

import argparse
import json
from dataclasses import MISSING
from typing import Any

from klamm.cli.serve import plan_of
from klamm.config.plan import PartPlan, ServerPlan
from klamm.config.plugin_registry import Found, PluginError, PluginRegistry
from klamm.config.setting import specs_of
from klamm.logs.causes import failure


def run(options: argparse.Namespace, plugins: PluginRegistry) -> int:
    """List all providers; with a TOML file, also the listeners that use each provider. Return the exit code."""
    used = _used(plan_of(options, plugins, files=False)) if options.file else {}
    rows = [_row(found, used, with_settings=options.settings or options.json) for found in plugins.all()]
    if options.json:
        rows += [_head(found, blocked=True) for found in plugins.blocked_providers]
        rows += [
            {"kind": "plugin", "name": name, "blocked": True} for name in sorted(plugins.blocked) if ":" not in name
        ]
        print(json.dumps(rows, indent=2, default=str))
        return 0
    heads = ("kind", "name", "version", "distribution", "summary")
    table = [heads, *(tuple(str(row[head]) for head in heads) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(heads))]
    for line, row in zip(table, [None, *rows], strict=True):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if row is not None and row["listeners"]:
            print(f"    used by {', '.join(row['listeners'])}")
        for setting in (row or {}).get("settings", ()) if options.settings else ():
            print(f"    {setting['name']} = {setting['default']}  # {setting['doc']}")
    for name in sorted(one for one in plugins.blocked if ":" not in one):
        print(f"blocked: plugin {name}")
    for one in plugins.blocked_providers:
        print(f"blocked: {one.kind.label} {one.provider.name} of {one.source.distribution}")
    for source, error in plugins.broken:
        print(f"broken: {source.entry_point} of {source.distribution}: {failure(error)}")
    return 0


def _head(found: Found, *, blocked: bool) -> dict[str, Any]:
    return {
        "kind": found.kind.label,
        "name": found.provider.name,
        "version": found.source.version,
        "distribution": found.source.distribution,
        "summary": found.provider.summary,
        "blocked": blocked,
    }


def _row(found: Found, used: dict[tuple[str, str], list[str]], *, with_settings: bool) -> dict[str, Any]:
    row = _head(found, blocked=False)
    row["listeners"] = used.get((found.kind.name, found.provider.name), [])
    try:
        settings = found.provider.load_settings() if with_settings else None
        if settings is not None:
            specs_of(settings)
    except Exception as error:
        raise PluginError(
            f'the settings of the {found.kind.label} "{found.provider.name}" of {found.source.distribution} cannot be'
            f" loaded: {failure(error)}"
        ) from error
    if settings is not None:
        row["settings"] = [
            {"name": spec.name, "default": None if spec.default is MISSING else spec.default, "doc": spec.doc}
            for spec in specs_of(settings).values()
        ]
    return row


def _used(plan: ServerPlan) -> dict[tuple[str, str], list[str]]:
    used: dict[tuple[str, str], list[str]] = {}

    def note(part: PartPlan | None, listener: str) -> None:
        if part is not None:
            used.setdefault((part.found.kind.name, part.found.provider.name), []).append(listener)

    for listener in plan.listeners:
        for part in (listener.transport, listener.authenticator, listener.authorizer, listener.assigner):
            note(part, listener.name)
        for part in (
            *listener.many,
            plan.api_sets[listener.api_set],
        ):
            note(part, listener.name)
    return used
