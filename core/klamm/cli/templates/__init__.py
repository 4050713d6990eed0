"""The templates of `klamm plugins new`. The command and the generator of the plugin pages read them.

`package.txt` has the files of every package. Each other text is named after its kind of part. Its first two lines are
the kind's hook and a line about the part. A line `==== NAME` begins each piece. Words in capitals are replaced, e.g.
NAME, MODULE and CLASS.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent
_PACKAGE: Final = "package"
_PIECE: Final = re.compile(r"^==== (.+)\n", re.MULTILINE)


class Template(NamedTuple):
    """One kind of part: its hook, a line about it, its module, its tests, and the TOML that uses it."""

    hook: str
    summary: str
    part: str
    tests: str
    toml: str


def _pieces(name: str) -> tuple[str, dict[str, str]]:
    head, *pieces = _PIECE.split((_FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
    return head, dict(zip(pieces[::2], pieces[1::2], strict=True))


def _template(kind: str) -> Template:
    head, pieces = _pieces(kind)
    hook, summary = head.splitlines()
    return Template(hook, summary, pieces["part"], pieces["tests"], pieces.get("toml", ""))


PACKAGE: Final = _pieces(_PACKAGE)[1]
"""The files of every package. `README.md` and `__init__.py` are the beginnings of these files, `hook` is one hook."""

KINDS: Final = {path.stem: _template(path.stem) for path in sorted(_FOLDER.glob("*.txt")) if path.stem != _PACKAGE}
"""The templates by the values of `--kind`."""
