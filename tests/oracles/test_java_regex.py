"""Compares `compile_java` and `java_replacement` with Java's own regular expressions."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from klamm.shared import JavaRegexError, compile_java, java_replacement

pytestmark = pytest.mark.interop

TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "aB",
    "Ab",
    "abc",
    "aab",
    "ÄRGER",
    "ärger",
    "é",
    "ſ",
    "K",
    "٣",
    "7",
    "a1_",
    " \t",
    "\u00a0",
    "\u2003",
    "a\n",
    "a\nb",
    "a\r\nb\r\n",
    "\r\n",
    "a\u2028b",
    "CN=alice,OU=tests,O=klamm",
    "cn=Alice.B,ou=Tests",
    "CN=a+b.c*,OU=x",
    "CN=\\Q,O=x",
    "[a]",
    "a-b",
    "a&b",
    "{}",
    "x^y",
    "\x1b\x07",
    "😀",
    "ǅ",
    "ⅷ",
    "你好",
    "!#/",
    "m",
    "z",
]
PATTERNS = [
    "^(?i)cn=(.*?),.*$",
    "(?i)CN=(.*)",
    "a(?i)b|ab",
    "(a(?i)b)c|(c)",
    "(?i:a)b",
    "(?i)ä.*",
    "(?i)[k-s]",
    "(?i)k|ſ",
    ".*",
    ".$",
    "$",
    "^",
    r"\Z",
    r".\Z",
    r"\z",
    r".\z",
    r"\A.",
    r"\Qa+b.c*\E",
    r"CN=\Qa+b.c*\E,(.*)",
    r"\QCN=",
    r"\\Q",
    *(rf"\p{{{name}}}+" for name in ("Lower", "Upper", "Alpha", "Digit", "Alnum", "Punct", "Space")),
    r"\P{Alpha}+",
    r"(?i)\p{Lower}+",
    r"[^\p{Alpha}]",
    r"[\p{Alpha}\p{Punct}]+",
    r"\w+",
    r"\W+",
    r"\d",
    r"\D+",
    r"\s+",
    r"\S+",
    r"[\w&&[^\d_]]+",
    r"[a-z&&[^m-p]]+",
    r"[a-z&&[abc]]",
    r"[a-]+",
    r"[-a]+",
    r"[x^]",
    r"[a&b]+",
    r"[.*+?{}()|$#]",
    r"a*+b",
    r"a++ab",
    r"a?+",
    r"(?>a|ab)c",
    r"a{2}b",
    r"a{1,}?",
    r"a{0,1}+b",
    r"(?<who>a)\k<who>b",
    r"(a)\1b",
    r"(?<=a)b",
    r"(?<!a)b",
    r"a(?=b)",
    r"a(?!b)",
    r"\x41|\u0042",
    r"[\x61-\u0063]",
    r"\/|\,|\-",
    r"}|]",
    "((?i)a)b",
    "(a|(?i)b|c)c?",
    "|a",
]
WRONG_IN_JAVA_TOO = [
    *("(", ")", "[", "[a", "*", "a**", "{", "a{,2}", "[z-a]", r"\y", r"\p{Foo}", r"\k<x>", r"(?q)a", "\\", r"\xg"),
    *(r"\08", "(?<1a>b)"),
]
# Java has these constructs. Here each is an error.
REFUSED = [
    *(
        r"\p{IsLatin}+",
        r"\p{InGreek}",
        r"\p{IsAlphabetic}",
        r"\p{L}+",
        r"\pL",
        r"\p{javaLowerCase}",
        r"[\p{L}&&[^\p{Lu}]]+",
    ),
    *(
        r"\bx",
        r"\B",
        r"\X",
        r"\Ga",
        r"\R",
        r"\h+",
        r"[\h\v]+",
        r"\e\a",
        r"\cA",
        r"\041",
        r"\x{1F600}",
        r"\uD83D\uDE00",
        r"(a)\11",
    ),
    *(
        "(?U)a",
        "(?s).*",
        "(?m)^.",
        "(?x) a b # comment",
        "(?d).*",
        "(?iu)k",
        "(?i)a(?-i)b",
        "(?<=a{1,2})b",
        r"\2(a)(b)",
    ),
    *("[a-c[m-z]]", "[^a-z&&[abc]]", "[a-z&&b-d&&c]", r"[a-z&&\w]", "[]a]+", "[+--]", r"[\Q[a]\E]+", "^*a", "a{2}{3}"),
]
FRAGMENTS = [
    *(
        "a",
        "b",
        "A",
        "C",
        "N",
        "=",
        ",",
        ".",
        "^",
        "$",
        "|",
        "(",
        ")",
        "(",
        ")",
        "*",
        "+",
        "?",
        "{2}",
        "{1,}",
        "-",
        "&",
        "ä",
    ),
    *(
        "[ab]",
        "[^a]",
        "[a-z]",
        "[a-z&&[^b]]",
        r"[\w.]",
        "[^,]",
        r"\d",
        r"\w",
        r"\W",
        r"\s",
        r"\b",
        r"\B",
        r"\z",
        r"\Z",
        r"\1",
    ),
    *(
        "(?i)",
        "(?i:",
        "(?:",
        "(?=",
        "(?!",
        "(?<=",
        "(?<!",
        "(?>",
        "(?<n>",
        r"\k<n>",
        r"\Qa.b\E",
        r"\.",
        r"\p{Alpha}",
        r"\P{Lower}",
    ),
    *(r"\x61", r"\u0042", "[", "]", "{", "}", "\\", "#", " ", "&&", "--", "[^", "[a", "x]", r"\n", r"\r", "1", "2"),
]


def drawn_patterns(count: int) -> list[str]:
    rng = random.Random(20261122)
    return ["".join(rng.choices(FRAGMENTS, k=rng.randint(1, 7))) for _ in range(count)]


def encoded(text: str) -> str:
    return text.encode().hex()


def of_java(patterns: list[str]) -> list[str]:
    source = Path(__file__).parent / "java" / "RegexOracle.java"
    lines = "\n".join(" ".join(map(encoded, (pattern, "<$0>", *TEXTS))) for pattern in patterns)
    done = subprocess.run(["java", str(source)], input=lines, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()


def of_python(pattern: str) -> str:
    try:
        compiled = compile_java(pattern)
    except JavaRegexError:
        return "error"
    replace = java_replacement("<$0>", compiled)
    return " ".join(f"{str(compiled.fullmatch(text) is not None).lower()}/{encoded(replace(text))}" for text in TEXTS)


def differences(patterns: list[str], expected: list[str]) -> list[tuple[str, str, str, str]]:
    """Return the cases in which Python and Java differ. A pattern that is an error differs once."""
    different = []
    for pattern, java in zip(patterns, expected, strict=True):
        answers = of_python(pattern)
        if "error" in (answers, java):
            if answers != java:
                different.append((pattern, "", answers[:5], java[:5]))
            continue
        different += [
            (pattern, text, answer, of_text)
            for text, answer, of_text in zip(TEXTS, answers.split(), java.split(), strict=True)
            # Java finds nothing within a surrogate pair either.
            if answer != of_text and (text != "😀" or answer.partition("/")[0] != of_text.partition("/")[0])
        ]
    return different


def test_patterns_match_and_replace_as_in_java() -> None:
    patterns = PATTERNS + WRONG_IN_JAVA_TOO
    expected = of_java(patterns)
    assert differences(patterns, expected) == []
    assert [pattern for pattern, java in zip(patterns, expected, strict=True) if java == "error"] == WRONG_IN_JAVA_TOO


def test_patterns_without_a_translation_are_refused() -> None:
    assert "error" not in of_java(REFUSED)
    assert [pattern for pattern in REFUSED if of_python(pattern) != "error"] == []


def test_random_patterns_are_refused_or_match_as_in_java() -> None:
    patterns = drawn_patterns(4000)
    different = [found for found in differences(patterns, of_java(patterns)) if found[2] != "error"]
    assert different == []
    # Some patterns are accepted.
    assert sum(of_python(pattern) != "error" for pattern in patterns) > 700
