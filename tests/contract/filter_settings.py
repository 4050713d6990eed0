"""Settings with which tests run each filter that is registered; one without an entry fails `test_every_filter.py`.

`SETTINGS` has by filter what stands in its table, so that honest requests pass in any order: behind
`record_encryption` values are ciphertext, which is neither UTF-8 nor JSON.
"""

import base64
import itertools

from klamm.config.plugin_registry import PluginRegistry, ProviderKind

KEYS = f"{__name__}:keys"
SETTINGS = {
    "deny_apis": ('deny=["CreateAcls"]',),
    "client_limits": ('client_ids=["*"]',),
    "rewrite_client_id": ("template={client_id}",),
    "topic_prefix": ("prefix=a.",),
    "record_validation": ('rules.all.topics=["*"]', "rules.all.value=any"),
    "record_encryption": (f"keys_function={KEYS}",),
    "faults": (),
    "audit": ("spool=FOLDER/spool", "node=node-1"),
}


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


def settings_of(names, folder, listener="default"):
    """The settings of a listener with these filters; `FOLDER` in one becomes the folder. Filters of tests have none."""
    listed = ", ".join(f'"{name}"' for name in names)
    own = [f"listeners.{listener}.{name}.{one}" for name in names for one in SETTINGS.get(name, ())]
    own = [one.replace("FOLDER", str(folder)) for one in own]
    return [f"listeners.{listener}.filters=[{listed}]", *own]
