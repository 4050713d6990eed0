"""Problems of a configuration, each with place, key, cause and, if possible, a suggestion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Problem(NamedTuple):
    """One problem. `place` is `file:line:column`, or the `--set` argument."""

    place: str
    key: str
    message: str

    def __str__(self) -> str:
        return "  ".join(
            part for part in (self.place, f"{self.key}: {self.message}" if self.key else self.message) if part
        )


class ConfigError(Exception):
    """Raised if a configuration cannot be used. `problems` has all problems of the configuration."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean "x"?` if a known word is similar, else an empty string."""
    # Imported here, because only a mistake needs the module.
    import difflib

    spelled = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    return f'; did you mean "{spelled[near[0]]}"?' if near else ""
