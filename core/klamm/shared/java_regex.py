"""Regular expressions as Java understands them, for settings whose grammar is Kafka's.

A pattern of `java.util.regex.Pattern` (Java 17) becomes one of `re` that matches the same texts. What Python cannot say
(scripts, blocks and most binary properties of Unicode, `\\G`, `\\X`, the flag U, look-behind of no fixed length, groups
that are referred to before they are there) is a JavaRegexError, never another meaning.
"""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_ENDS: Final = r"\n\r\x85\u2028\u2029"
_BEFORE_END: Final = r"\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n"
_ANY: Final = r"[\s\S]"
_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Alnum": "A-Za-z0-9",
    "Punct": "".join(f"\\{character}" for character in string.punctuation),
    "Graph": r"\x21-\x7e",
    "Print": r"\x20-\x7e",
    "Blank": r"\ \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r"\ \t\n\x0b\f\r",
}
_CLASSES: Final = {
    "d": "0-9",
    "w": "A-Za-z0-9_",
    "s": r"\ \t\n\x0b\f\r",
    "h": r"\ \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
# What Java has by other names, as general categories.
_BINARY: Final = {
    "letter": "L",
    "digit": "Nd",
    "punctuation": "P",
    "control": "Cc",
    "titlecase": "Lt",
}
_CATEGORIES: Final = frozenset(
    ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Me", "Mc", "Nd", "Nl", "No", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs", "Cn")
    + ("Pd", "Ps", "Pe", "Pc", "Po", "Pi", "Pf", "Sm", "Sc", "Sk", "So")
)
_CASED: Final = frozenset({"Lu", "Ll", "Lt"})
_FLAGS: Final = "idmsux"
_FLAG_GROUP: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAMED_GROUP: Final = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_NAME: Final = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")
_PROPERTY: Final = re.compile(r"\{([^}]*)\}|([A-Z])")
_REPETITION: Final = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_OCTAL: Final = re.compile(r"[0-3][0-7]{2}|[0-7]{1,2}")
_HEX: Final = re.compile(r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\}")
_UTF16: Final = re.compile(r"([0-9a-fA-F]{4})")
_LOW_SURROGATE: Final = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_REPLACEMENT_TOKEN: Final = re.compile(r"\\(.)|\$([0-9]+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([^\\$]+)|(.)", re.DOTALL)


class JavaRegexError(ValueError):
    """No pattern or replacement of Java's, or one that Python cannot express."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """The same as `Pattern.compile(pattern)`, groups and their names included. Raises JavaRegexError."""
    try:
        return re.compile(_Translation(_without_quotes(pattern)).translated(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(f'"{pattern}" is no regular expression, or none for Python: {error}') from error
    except JavaRegexError as error:
        raise JavaRegexError(f'"{pattern}": {error}') from error


def java_replacement(
    text: str, pattern: re.Pattern[str], *, first_only: bool = False, keep_unknown: bool = False
) -> Callable[[str], str]:
    """What does as `Matcher.replaceAll(text)`, or `replaceFirst`: `$1`, `${name}`, a backslash before any character.

    A number takes as many digits as name a group. One that names none is a JavaRegexError, or stands for itself with
    `keep_unknown` if the pattern has groups at all.
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
            raise JavaRegexError(f'"{text}": {wrong or token.group()} stands for nothing')

    def replace(where: str) -> str:
        done: list[str] = []
        kept = position = 0
        # Not `re.sub`: after an empty match Java looks no second time at the same place.
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


def _without_quotes(pattern: str) -> str:
    r"""`\Q…\E` with a backslash before each character that might mean something."""
    parts = []
    position = 0
    while position < len(pattern):
        if pattern.startswith("\\Q", position):
            end = pattern.find("\\E", position + 2)
            quoted = pattern[position + 2 : end if end >= 0 else len(pattern)]
            parts += [c if c in string.ascii_letters or not c.isascii() else f"\\x{ord(c):02x}" for c in quoted]
            position = end + 2 if end >= 0 else len(pattern)
        else:
            step = 2 if pattern[position] == "\\" else 1
            parts.append(pattern[position : position + step])
            position += step
    return "".join(parts)


def _literal(code: int) -> str:
    """A character that means nothing else, inside a class or outside."""
    character = chr(code)
    if character in string.ascii_letters or character in string.digits:
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@lru_cache(maxsize=64)
def _ranges(categories: frozenset[str]) -> str:
    """The inside of a class with all characters of some general categories."""
    parts = []
    start = -1
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)) in categories
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            parts.append(f"{_literal(start)}-{_literal(code - 1)}")
            start = -1
    return "".join(parts)


class _Translation:
    """One walk over a pattern. Only the flags i and u are left to Python; the others are worked into what they change.

    A flag holds to the end of its group, branches that follow included, but Python wants it around something: every
    branch gets a scope of its own.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._flags: frozenset[str] = frozenset()
        self._groups = 0
        self._output: list[str] = []

    def translated(self) -> str:
        # (flags outside, whether a scope is open) of each group around
        around: list[tuple[frozenset[str], bool]] = []
        scoped = False
        while self._position < len(self._source):
            character = self._source[self._position]
            if self._skip_comment(character):
                continue
            if character == "(":
                flags = self._flags
                if self._take_flags():
                    self._output.append((")" if scoped else "") + self._scope())
                    scoped = True
                else:
                    around.append((flags, scoped))
                    scoped = False
            elif character == ")":
                if not around:
                    raise JavaRegexError("there is a ) without a (")
                self._output.append("))" if scoped else ")")
                self._flags, scoped = around.pop()
                self._position += 1
            elif character == "|":
                self._output.append(f")|{self._scope()}" if scoped else "|")
                self._position += 1
            else:
                self._output.append(self._atom(character))
        if around:
            raise JavaRegexError("there is a ( without a )")
        return "".join(self._output) + (")" if scoped else "")

    def _skip_comment(self, character: str) -> bool:
        if "x" not in self._flags:
            return False
        if character in string.whitespace:
            self._position += 1
            return True
        if character == "#":
            ends = "\n" if "d" in self._flags else "\n\r\x85\u2028\u2029"
            while self._position < len(self._source) and self._source[self._position] not in ends:
                self._position += 1
            return True
        return False

    def _scope(self) -> str:
        return f"(?{'u' if 'u' in self._flags else 'a'}{'i' if 'i' in self._flags else '-i'}:"

    def _take_flags(self) -> bool:
        """Take the head of a group; True if it was a flag for what follows, and no group."""
        source, position = self._source, self._position
        if not source.startswith("(?", position):
            self._groups += 1
            self._take("(")
        elif named := _NAMED_GROUP.match(source, position):
            self._groups += 1
            self._output.append(f"(?P<{named[1]}>")
            self._position = named.end()
        elif flags := _FLAG_GROUP.match(source, position):
            self._position = flags.end()
            on, off = frozenset(flags[1]), frozenset(flags[2] or "")
            for flag in sorted(on | off):
                if flag not in _FLAGS:
                    raise JavaRegexError(f"(?{flag}) cannot be had here")
            self._flags = (self._flags | on) - off
            if flags[3] == ")":
                return True
            self._output.append(self._scope())
        else:
            for head in ("(?=", "(?!", "(?<=", "(?<!", "(?>"):
                if source.startswith(head, position):
                    self._take(head)
                    return False
            raise JavaRegexError(f"{source[position : position + 4]} begins no group")
        return False

    def _take(self, text: str) -> None:
        self._output.append(text)
        self._position += len(text)

    def _atom(self, character: str) -> str:
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character == "{":
            repetition = _REPETITION.match(self._source, self._position)
            if repetition is None:
                raise JavaRegexError("{ begins no repetition")
            self._position = repetition.end()
            return repetition[0]
        self._position += 1
        if character in "*+?":
            return character
        if character == ".":
            return _ANY if "s" in self._flags else r"[^\n]" if "d" in self._flags else f"[^{_ENDS}]"
        if character == "^":
            return self._beginning()
        if character == "$":
            return self._end("m" in self._flags)
        return _literal(ord(character))

    def _beginning(self) -> str:
        if "m" not in self._flags:
            return r"\A"
        if "d" in self._flags:
            return r"(?:(?!\Z)(?:\A|(?<=\n)))"
        return r"(?:(?!\Z)(?:\A|(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n)))"

    def _end(self, of_any_line: bool) -> str:
        if "d" in self._flags:
            return r"(?=\n|\Z)" if of_any_line else r"(?=\n?\Z)"
        return rf"(?={_BEFORE_END}|\Z)" if of_any_line else rf"(?=(?:{_BEFORE_END})?\Z)"

    def _escape(self) -> str:
        """What begins with a backslash, outside of a class."""
        letter = self._source[self._position + 1 : self._position + 2]
        if letter in ("A", "b", "B"):
            self._position += 2
            if self._source.startswith("{", self._position):
                raise JavaRegexError(f"\\{letter}{{ cannot be had here")
            return f"\\{letter}"
        if letter == "z":
            self._position += 2
            return r"\Z"
        if letter == "Z":
            self._position += 2
            return self._end(False)
        if letter == "R":
            self._position += 2
            return rf"(?:\r\n|[{_CLASSES['v']}])"
        if letter == "k":
            return self._named_reference()
        if letter in "123456789" and letter:
            return self._numbered_reference()
        found = self._predefined(letter)
        return found if found is not None else _literal(self._character())

    def _named_reference(self) -> str:
        name = _NAME.match(self._source, self._position + 2)
        if name is None:
            raise JavaRegexError("\\k needs the <name> of a group")
        self._position = name.end()
        return f"(?P={name[1]})"

    def _numbered_reference(self) -> str:
        number = int(self._source[self._position + 1])
        self._position += 2
        if number > self._groups:
            raise JavaRegexError(f"\\{number} refers to a group that is not there before it")
        while self._source[self._position : self._position + 1].isdigit():
            longer = number * 10 + int(self._source[self._position])
            if longer > self._groups:
                break
            number = longer
            self._position += 1
        return f"(?:\\{number})"

    def _predefined(self, letter: str) -> str | None:
        r"""`\d`, `\p{Alpha}` and their like, as a class; None if it is something else."""
        if letter and letter.lower() in _CLASSES:
            self._position += 2
            return f"[{'^' if letter.isupper() else ''}{_CLASSES[letter.lower()]}]"
        if letter not in ("p", "P"):
            return None
        found = _PROPERTY.match(self._source, self._position + 2)
        if found is None:
            raise JavaRegexError(f"\\{letter} needs a {{name}}")
        self._position = found.end()
        inside, negated = self._property(found[1] if found[1] is not None else found[2])
        return f"[{'^' if (letter == 'P') != negated else ''}{inside}]"

    def _property(self, name: str) -> tuple[str, bool]:
        """The inside of a class, and whether it is what the property does not have."""
        if name in _POSIX:
            return _POSIX[name], False
        if name == "L1":
            return r"\x00-\xff", False
        if name in ("IsAssigned", "Isassigned"):
            return _ranges(frozenset({"Cn"})), True
        key, equals, value = name.partition("=")
        if equals and key.lower() in ("gc", "general_category"):
            wanted = value
        elif equals:
            wanted = ""
        else:
            wanted = name.removeprefix("Is")
            if wanted is not name and wanted.lower() in _BINARY:
                wanted = _BINARY[wanted.lower()]
        if wanted == "LC":
            found = _CASED
        elif wanted == "LD":
            found = frozenset(one for one in _CATEGORIES if one[0] == "L" or one == "Nd")
        else:
            found = frozenset(one for one in _CATEGORIES if wanted in (one, one[0]))
        if not found:
            raise JavaRegexError(f"\\p{{{name}}} cannot be had here")
        if "i" in self._flags and found & _CASED:
            # As Java does since 15: upper, lower and title case are one then.
            found |= _CASED
        return _ranges(found), False

    def _character(self) -> int:
        """The code point of an escaped character."""
        source = self._source
        letter = source[self._position + 1 : self._position + 2]
        if not letter:
            raise JavaRegexError("there is nothing after the last backslash")
        self._position += 2
        if letter in _CONTROLS:
            return ord(_CONTROLS[letter])
        if letter == "0":
            return self._number(_OCTAL, 8, "\\0 needs an octal number")
        if letter == "x":
            return self._number(_HEX, 16, "\\x needs two hexadecimal digits, or some in braces")
        if letter == "u":
            high = self._number(_UTF16, 16, "\\u needs four hexadecimal digits")
            low = _LOW_SURROGATE.match(source, self._position)
            if 0xD800 <= high < 0xDC00 and low is not None:
                self._position = low.end()
                return 0x10000 + ((high - 0xD800) << 10) + int(low[1], 16) - 0xDC00
            return high
        if letter == "c" and self._position < len(source):
            self._position += 1
            return ord(source[self._position - 1]) ^ 64
        if letter in string.ascii_letters or letter in string.digits:
            raise JavaRegexError(f"\\{letter} cannot be had here")
        return ord(letter)

    def _number(self, form: re.Pattern[str], base: int, wrong: str) -> int:
        found = form.match(self._source, self._position)
        if found is None:
            raise JavaRegexError(wrong)
        self._position = found.end()
        code = int(found[0].strip("{}"), base)
        if code > sys.maxunicode:
            raise JavaRegexError(f"{code:#x} is no character")
        return code

    def _class(self) -> str:
        """`[…]` with its unions and intersections, as something that matches one character."""
        self._position += 1
        negated = self._source.startswith("^", self._position)
        if negated:
            self._position += 1
        operands: list[str] = []
        members: list[str] = []
        nested: list[str] = []
        while True:
            character = self._source[self._position : self._position + 1]
            if not character:
                raise JavaRegexError("there is a [ without a ]")
            if self._skip_comment(character):
                continue
            if character == "]" and (members or nested or operands):
                self._position += 1
                break
            if self._source.startswith("&&", self._position):
                self._position += 2
                operands.append(_union(members, nested))
                members, nested = [], []
            elif character == "[":
                nested.append(self._class())
            else:
                self._member(character, members, nested)
        operands.append(_union(members, nested))
        if len(operands) == 1 and not nested:
            return f"[{'^' if negated else ''}{''.join(members)}]"
        whole = "".join(f"(?={operand})" for operand in operands[:-1]) + operands[-1]
        return f"(?:(?!{whole}){_ANY})" if negated else f"(?:{whole})"

    def _member(self, character: str, members: list[str], nested: list[str]) -> None:
        """A character, a range, or a predefined class."""
        if character == "\\":
            predefined = self._predefined(self._source[self._position + 1 : self._position + 2])
            if predefined is not None:
                nested.append(predefined)
                return
        first = self._class_character()
        following = self._source[self._position + 1 : self._position + 2]
        if self._source[self._position : self._position + 1] != "-" or following in ("", "]", "["):
            members.append(_literal(first))
            return
        self._position += 1
        last = self._class_character()
        if last < first:
            raise JavaRegexError(f"{chr(first)}-{chr(last)} is no range")
        members.append(f"{_literal(first)}-{_literal(last)}")

    def _class_character(self) -> int:
        if self._source[self._position] == "\\":
            return self._character()
        self._position += 1
        return ord(self._source[self._position - 1])


def _union(members: list[str], nested: list[str]) -> str:
    found = [*([f"[{''.join(members)}]"] if members else []), *nested]
    if not found:
        raise JavaRegexError("a side of && is empty")
    return found[0] if len(found) == 1 else f"(?:{'|'.join(found)})"
