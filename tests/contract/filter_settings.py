"""Settings with which tests run each filter that is registered; one without an entry fails `test_every_filter.py`.

`SETTINGS` has by filter what stands in its table, so that honest requests pass in any order: behind
`record_encryption` values are ciphertext, which is neither UTF-8 nor JSON. Only the topic `STRICT` has a rule that
refuses records. `ON_EACH_REQUEST` has what puts filters in the way of each request of a client that has not logged in.
"""

import base64
import itertools
from pathlib import Path

from klamm.config.plugin_registry import PluginRegistry, ProviderKind

KEYS = f"{__name__}:keys"
SCHEMA = Path(__file__).with_name("order.schema.json")
STRICT = "strict"
"""The topic whose values `record_validation` holds to `SCHEMA`, also behind a prefix."""
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
"""Filters that are for an observer of the same name and settings."""


def keys():
    """What `record_encryption` gets."""
    return {"current": "k", "keys": {"k": base64.b64encode(bytes(32)).decode()}}


def registered():
    """The names of all filters that klamm and what is installed beside it provide."""
    return tuple(one.provider.name for one in PluginRegistry().providers(ProviderKind.REQUEST_FILTER))


def alone_and_stacked():
    """Each filter alone, and all of them, forth and back."""
    names = registered()
    return [*((name,) for name in names), names, names[::-1]]


def pairs():
    """Each two filters in both orders."""
    return list(itertools.permutations(registered(), 2))


def settings_of(names, folder, listener="default", *, own=(), observers=()):
    """The settings of a listener with these filters; `FOLDER` in one becomes the folder. Filters of tests have none.

    `own` has by filter what stands in place of `SETTINGS`. `observers` are those of the listener, beside the filters'.
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
