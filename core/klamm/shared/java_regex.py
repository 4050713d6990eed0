r"""The translation of Java's regular expressions to Python's `re`, for rules that map principals.

It translates the constructs that such rules use: characters, `.` `^` `$`, classes with ranges, negation and
`[a-z&&[^x]]`, `\d \w \s` and their opposites, seven POSIX classes such as `\p{Alpha}`, `\Q…\E`, `\A \z \Z`,
`\t \n \r \f \xhh \uhhhh`, groups of every kind, back references, greedy, lazy and possessive repetition, `(?i)`. They
have the same meaning as in `java.util.regex.Pattern`. All other constructs raise JavaRegexError with the construct and
its place. This includes `\b`, because its meaning depends on the version of Java.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

_BEFORE_LAST_LINE_END: Final = r"(?=(?:\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n)?\Z)"
_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Alnum": "A-Za-z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r"\s",
}
_OTHER_WORD: Final = {
    ".": r"[^\n\r\x85\u2028\u2029]",
    "$": _BEFORE_LAST_LINE_END,
    r"\Z": _BEFORE_LAST_LINE_END,
    r"\z": r"\Z",
}
# Excludes surrogates, which are not characters, and references with several digits, which may be ambiguous.
_SAME_IN_CLASS: Final = r"\\[dDwWsStnrf]|\\x[0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\[^A-Za-z0-9]"
_MEMBER: Final = rf"{_SAME_IN_CLASS}|\\p\{{(?:{'|'.join(_POSIX)})\}}|(?!&&|--)[^\[\]\\]"
_TOKEN: Final = re.compile(
    rf"""\\Q(?P<quoted>.*?)(?:\\E|\Z)
    | (?P<same>{_SAME_IN_CLASS}|\\A|\\[1-9](?![0-9])|[\^*+?]|\{{[0-9]+(?:,[0-9]*)?\}})
    | (?P<other>[.$]|\\[zZ])
    | \\(?P<posix>[pP])\{{(?P<posix_name>{"|".join(_POSIX)})\}}
    | \\k<(?P<reference>[A-Za-z][A-Za-z0-9]*)>
    | \[(?P<negated>\^?+)(?P<members>(?:{_MEMBER})+)\]
    | \[(?!\^)(?P<left>(?:{_MEMBER})+)&&\[(?P<negated_right>\^?+)(?P<right>(?:{_MEMBER})+)\]\]
    | (?P<ignore_case>\(\?i\))
    | \(\?<(?P<group>[A-Za-z][A-Za-z0-9]*)>
    | (?P<open>\((?:\?(?:i?:|[=!>]|<[=!]))?(?!\?))
    | (?P<close>\)) | (?P<or>\|)
    | (?P<literal>[^\\\[({{])""",
    re.VERBOSE | re.DOTALL,
)
_CONSTRUCT: Final = re.compile(r"\\[pPx]\{[^}]*\}|\\k<[^>]*>|\\.|\(\?[^():]*[):]?|.", re.DOTALL)
_REPLACEMENT_TOKEN: Final = re.compile(r"\\(.)|\$([0-9]+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([^\\$]+)|(.)", re.DOTALL)


class JavaRegexError(ValueError):
    """Raised for a pattern or a replacement that is wrong in Java, or that cannot be translated."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile like Java's `Pattern.compile(pattern)`, including groups and their names. Raises JavaRegexError."""
    done: list[str] = []
    # The position of each token in the pattern and in the translation, for errors.
    sources, targets = [0], [0]
    scopes: list[bool] = []
    ignoring_case = False
    position = 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            construct = _CONSTRUCT.match(pattern, position)
            assert construct is not None
            raise JavaRegexError(f'"{pattern}": {construct[0]} at character {position + 1} has no translation')
        sources.append(position)
        targets.append(targets[-1] + len(done[-1]) if done else 0)
        position = token.end()
        if token["ignore_case"]:
            # In Java, the flag applies up to the end of its group, including other branches. Python needs the flag
            # around each branch.
            done.append("" if ignoring_case else "(?i:")
            ignoring_case = True
        elif token["open"] or token["group"]:
            scopes.append(ignoring_case)
            ignoring_case = False
            done.append(token["open"] or f"(?P<{token['group']}>")
        elif token["close"]:
            done.append("))" if ignoring_case else ")")
            ignoring_case = scopes.pop() if scopes else False
        elif token["or"]:
            done.append(")|(?i:" if ignoring_case else "|")
        else:
            done.append(_translated(token))
    try:
        return re.compile("".join(done) + (")" if ignoring_case else ""), re.ASCII)
    except re.error as error:
        where = sources[bisect_right(targets, error.pos or 0) - 1] + 1
        raise JavaRegexError(f'"{pattern}": {error.msg} at character {where}') from error
    except (OverflowError, RecursionError) as error:
        raise JavaRegexError(f'"{pattern}": {error}') from error


def _translated(token: re.Match[str]) -> str:
    if token["members"]:
        return f"[{token['negated']}{_members(token['members'])}]"
    if token["left"]:
        return f"(?:(?=[{token['negated_right']}{_members(token['right'])}])[{_members(token['left'])}])"
    if token["posix"]:
        return f"[{'^' if token['posix'] == 'P' else ''}{_POSIX[token['posix_name']]}]"
    if token["reference"]:
        return f"(?P={token['reference']})"
    if token["other"]:
        return _OTHER_WORD[token["other"]]
    return token["same"] or re.escape(token["quoted"] or token["literal"] or "")


def _members(text: str) -> str:
    def member(found: re.Match[str]) -> str:
        if found[0].startswith("\\p"):
            return _POSIX[found[0][3:-1]]
        return found[0] if len(found[0]) > 1 or found[0] == "-" else re.escape(found[0])

    return re.sub(_MEMBER, member, text, flags=re.DOTALL)


def java_replacement(
    text: str, pattern: re.Pattern[str], *, first_only: bool = False, keep_unknown: bool = False
) -> Callable[[str], str]:
    """Return a function that works like `Matcher.replaceAll(text)`, or like `replaceFirst`.

    `$1` and `${name}` stand for groups; a backslash escapes the next character. A group's number has as many digits as
    possible. Raises JavaRegexError if there is no such group. With `keep_unknown`, such a number is literal text if the
    pattern has any groups.
    """
    parts: list[str | int] = []
    for token in _REPLACEMENT_TOKEN.finditer(text):
        escaped, number, group, literal, wrong = token.groups()
        if escaped is not None or literal is not None:
            parts.append(escaped or literal)
        elif number is not None:
            parts += _reference(number, pattern, keep_unknown)
        elif group is not None and group in pattern.groupindex:
            parts.append(pattern.groupindex[group])
        else:
            raise JavaRegexError(f'"{text}": {wrong or token.group()} is not a reference to a group')

    def replace(where: str) -> str:
        done: list[str] = []
        kept = position = 0
        # Not `re.sub`, because after an empty match Java does not search the same place again.
        while position <= len(where) and (match := pattern.search(where, position)) is not None:
            done.append(where[kept : match.start()])
            done += (part if isinstance(part, str) else match.group(part) or "" for part in parts)
            kept = match.end()
            position = kept if kept > match.start() else kept + 1
            if first_only:
                break
        done.append(where[kept:])
        return "".join(done)

    return replace


def _reference(digits: str, pattern: re.Pattern[str], keep_unknown: bool) -> list[str | int]:
    if digits[0] == "0":
        return [0, digits[1:]]
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= pattern.groups:
            return [int(digits[:end]), digits[end:]]
    if not pattern.groups or not keep_unknown:
        raise JavaRegexError(f'"${digits}" refers to a group that the pattern does not have')
    return [f"${digits}"]
