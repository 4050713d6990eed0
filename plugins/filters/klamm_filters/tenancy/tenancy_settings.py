"""The settings of `topic_prefix`, and the prefix of each principal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from klamm import ANONYMOUS, KafkaPrincipal, setting

PRINCIPAL: Final = "{principal}"
SECRET_BYTES: Final = 32

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def _folded(name: str) -> str:
    """Replace `.` by `_`. For Kafka such names collide, because the names of their metrics are equal."""
    return name.replace(".", "_")


def overlap(one: str, other: str) -> bool:
    """Return True if a name could begin with both prefixes."""
    one, other = _folded(one), _folded(other)
    return one.startswith(other) or other.startswith(one)


def _check_prefix(prefix: str) -> str | None:
    if not prefix:
        return None
    before, found, after = prefix.partition(PRINCIPAL)
    if not _LEGAL.fullmatch(before + after):
        return "a prefix may contain letters, digits, `.`, `_` and `-`, and {principal} at most once"
    if found and not after:
        return "something must follow {principal}, e.g. `-`: else the names of bob could be those of bobby"
    if before == "__" and not found:
        return "topics that begin with `__` are internal"
    return None


def _check_prefixes(prefixes: dict[str, str]) -> str | None:
    for principal, prefix in prefixes.items():
        if ":" not in principal:
            return f'"{principal}" is not a principal such as User:{principal}'
        if not _LEGAL.fullmatch(prefix):
            return f'"{prefix}" is not a prefix: it may contain letters, digits, `.`, `_` and `-`'
    for one, other in combinations(sorted(set(prefixes.values())), 2):
        if overlap(one, other):
            return f'the prefixes "{one}" and "{other}" overlap: a name could begin with both'
    return None


@dataclass(frozen=True, slots=True)
class TopicPrefixSettings:
    """`[listeners.NAME.topic_prefix]`."""

    prefix: str = setting(
        "",
        doc="Prefix of the names of clients' topics, groups and transactional ids at the broker. {principal} "
        "stands for the name of the principal, e.g. `{principal}-`. Empty: only the principals in "
        "`principals` have a prefix.",
        check=_check_prefix,
    )
    principals: dict[str, str] = setting(
        {},
        doc='Prefix by principal, e.g. `"User:alice" = "team-a."`; takes precedence over `prefix`.',
        check=_check_prefixes,
    )
    topic_id_secret_file: Path | None = setting(
        None,
        doc="File with at least 32 bytes, from which the keys of topic ids are derived; the same for all servers "
        "of a cluster. Unset: the keys are derived only from the prefix.",
        private=True,
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield problems: no prefix at all, overlapping prefixes, or a file that cannot be used."""
        if not self.prefix and not self.principals:
            yield "", "set `prefix` or `principals`"
        if self.prefix and PRINCIPAL not in self.prefix:
            for principal, prefix in self.principals.items():
                if prefix != self.prefix and overlap(prefix, self.prefix):
                    yield f"principals.{principal}", f'"{prefix}" overlaps with the prefix "{self.prefix}"'
        if self.topic_id_secret_file is not None:
            try:
                read_secret(self.topic_id_secret_file)
            except OSError as error:
                yield "topic_id_secret_file", f"{self.topic_id_secret_file}: {error.strerror}"
            except ValueError as error:
                yield "topic_id_secret_file", str(error)


def read_secret(path: Path | None) -> bytes:
    """Return the secret for topic ids; empty if no file is set. Raises OSError, ValueError."""
    if path is None:
        return b""
    secret = path.read_bytes()
    if len(secret) < SECRET_BYTES:
        raise ValueError(f"{path}: has {len(secret)} bytes, at least {SECRET_BYTES} are needed")
    return secret


def prefix_of(settings: TopicPrefixSettings, principal: KafkaPrincipal) -> str | None:
    """Return the prefix of a principal, or None if it has none or if it overlaps with another principal's prefix."""
    own = settings.principals.get(str(principal))
    if own is not None:
        return own
    before, found, after = settings.prefix.partition(PRINCIPAL)
    if not found:
        return settings.prefix or None
    name = principal.name
    if principal.type != ANONYMOUS.type or principal == ANONYMOUS or not _LEGAL.fullmatch(name):
        return None
    # Names that differ only in `.` and `_`, or one of which starts with the other, would overlap.
    if "." in name or _folded(after[0]) in _folded(name):
        return None
    prefix = before + name + after
    return None if any(overlap(prefix, one) for one in settings.principals.values()) else prefix
