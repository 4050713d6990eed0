"""Settings with which tests run each registered filter. A filter without an entry fails `test_every_filter.py`.

`SETTINGS` has the settings of each filter. With them, valid requests pass through all filters in any order. So the
rules of `record_validation` accept all bytes, except in the topic `STRICT`: `record_encryption` makes values
ciphertext, which is neither UTF-8 nor JSON. With the settings of `ON_EACH_REQUEST` a filter also acts on the requests
of clients that have not authenticated.
"""

import base64
import itertools
from pathlib import Path

from klamm.config.plugin_registry import PluginRegistry, ProviderKind

KEYS = f"{__name__}:keys"
SCHEMA = Path(__file__).with_name("order.schema.json")
STRICT = "strict"
"""The topic in which `record_validation` holds values to `SCHEMA`, with or without a prefix in its name."""
SETTINGS = {
    "deny_apis": ('deny=["CreateAcls"]',),
    "client_limits": ('client_ids=["*"]',),
    "rewrite_client_id": ("template={client_id}",),
    "topic_prefix": ("prefix=a.",),
    "record_validation": (
        f'rules.first.topics=["{STRICT}", "*.{STRICT}"]',
        f"rules.first.value_schema={SCHEMA}",
        'rules.second.topics=["*"]',
        "rules.second.value=any",
    ),
    "record_encryption": (f"keys_function={KEYS}",),
    "faults": (),
    "audit": ("spool=FOLDER/spool", "node=node-1", "on_full=refuse"),
}
ON_EACH_REQUEST = {
    "deny_apis": ('deny=["*"]', 'except_principals=["User:ANONYMOUS"]'),
    "faults": ("rules.all.kind=delay", "rules.all.delay_ms=1"),
}
OBSERVERS = ("audit",)
"""Filters that are used together with an observer of the same name and the same settings."""


def keys():
    """Return the keys of `record_encryption`, as its setting `keys_function` requires."""
    return {"current": "k", "keys": {"k": base64.b64encode(bytes(32)).decode()}}


def registered():
    """Return the names of all registered filters: klamm's, and those of other installed packages."""
    return tuple(one.provider.name for one in PluginRegistry().providers(ProviderKind.REQUEST_FILTER))


def alone_and_stacked():
    """Return lists of filters: each one alone, all of them, and all in reverse order."""
    names = registered()
    return [*((name,) for name in names), names, names[::-1]]


def pairs():
    """Return all pairs of filters, in both orders."""
    return list(itertools.permutations(registered(), 2))


def settings_of(names, folder, listener="default", *, own=(), observers=()):
    """Return the settings of a listener with these filters. The text `FOLDER` in a setting becomes the path `folder`.

    Filters that a test defines have no entry in `SETTINGS`, and get no settings. `own` replaces the entries of
    `SETTINGS` for its filters. `observers` are added to the observers that the filters need.
    """
    by_filter = {**SETTINGS, **dict(own)}
    settings = [f"listeners.{listener}.filters={_listed(names)}"]
    observers = [*observers, *(name for name in OBSERVERS if name in names)]
    if observers:
        settings.append(f"listeners.{listener}.observers={_listed(observers)}")
    settings += [f"listeners.{listener}.{name}.{one}" for name in names for one in by_filter.get(name, ())]
    return [one.replace("FOLDER", str(folder)) for one in settings]


def _listed(names):
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
