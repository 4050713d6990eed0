"""`shown`: settings as JSON, without secrets."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm.config.setting import SettingSpec, specs_of

HIDDEN: Final = "(hidden)"
_NAMES_SECRET: Final = re.compile(
    r"(password|passwd|passphrase|secret|token|credential|jaas([._-]config)?|(private|secret|access|api)[._-]?key|key_pem)s?$",
    re.IGNORECASE,
)
_OF_URL: Final = re.compile(r"(?<=://)\S+(?=@)|(?<=\?)\S+")
"""The user and the password in a URL, which may contain any character, and its query."""


def shown(settings: Any) -> list[dict[str, Any]]:
    """Return the `key` and the `value` of each setting of an object, and whether it is its `default`.

    None, the settings of a part without any, has none. A secret that is set is hidden.
    """
    if settings is None:
        return []
    rows = []
    for spec in specs_of(type(settings)).values():
        value = getattr(settings, spec.attribute)
        is_hidden = is_secret(spec) and bool(value)
        rows.append(
            {"key": spec.name, "value": HIDDEN if is_hidden else _json(value), "default": value == spec.default}
        )
    return rows


def is_secret(spec: SettingSpec) -> bool:
    """Return True if a value must not be shown: the setting says so, or has texts and a name that says so, in a plugin
    that does not declare its secrets.
    """
    return spec.secret or (_has_texts(spec.kind) and _NAMES_SECRET.search(spec.name) is not None)


def _has_texts(kind: Any) -> bool:
    return kind in (str, Any) or any(map(_has_texts, typing.get_args(kind)))


def _json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {row["key"]: row["value"] for row in shown(value) if not row["default"]}
    if isinstance(value, Mapping):
        # A table without declared settings.
        return {
            str(key): HIDDEN if each and _NAMES_SECRET.search(str(key)) else _json(each) for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    if isinstance(value, (str, Path)):
        text = str(value)
        if "PRIVATE KEY-----" in text:
            return HIDDEN
        return _OF_URL.sub(HIDDEN, text) if "://" in text else text
    # A number of TOML may be infinite or a date, which JSON has no form for.
    is_json = value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and abs(value) < 1e300)
    return value if is_json else str(value)
