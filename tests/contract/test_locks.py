"""Each lock in the source has a comment that says what the lock protects."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LOCK = re.compile(r"=\s*(?:threading\.)?(?:Lock|RLock|Condition)\(\)")


def test_each_lock_has_a_comment_that_says_what_it_protects() -> None:
    silent = []
    for path in (path for folder in ("core", "plugins", "spark") for path in (ROOT / folder).rglob("*.py")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            around = (lines[number - 1], line, *lines[number + 1 : number + 2])
            if _LOCK.search(line) and not any("# " in each or '"""' in each for each in around):
                silent.append(f"{path.relative_to(ROOT)}:{number + 1}")
    assert not silent, f"these locks do not say what they protect: {silent}"
