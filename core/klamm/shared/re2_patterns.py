r"""`compile_re2`, which compiles the regular expressions of clients with RE2, within limits.

RE2 matches in linear time. But it holds the interpreter lock while it compiles, so that no other thread runs. Without
limits, that would take 0.8 s for an expression of 30 KB like `\pL\pL\pL…`.
"""

from __future__ import annotations

from typing import Any, Final

MAX_MEMORY_BYTES: Final = 1_048_576
"""The maximum memory of a compiled expression. RE2's default is eight times as much, and filling it takes 100 ms."""
MAX_UNICODE_CLASSES: Final = 100
r"""The maximum number of classes like `\pL`. Reading one takes 80 µs."""
_NO_RE2: Final = "the server has no RE2: google-re2 (the extra `regex` of klamm) is not installed"
MAX_BRACES: Final = 100
"""The maximum number of repetitions like `{2,1000}`. Compiling one takes 160 µs."""


def compile_re2(pattern: str) -> Any:
    """Compile an expression of RE2.

    Raises ValueError if the expression is invalid or would take too long to compile, or if RE2 is not installed.
    """
    if pattern.count("\\p") + pattern.count("\\P") > MAX_UNICODE_CLASSES or pattern.count("{") > MAX_BRACES:
        raise ValueError("too many classes of Unicode characters, or repetitions")
    # Imported here, because most servers need it seldom or never.
    try:
        import re2
    except ModuleNotFoundError:
        raise ValueError(_NO_RE2) from None

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
