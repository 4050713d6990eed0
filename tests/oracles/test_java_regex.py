"""`compile_java` and `java_replacement` against Java's own regular expressions."""

from __future__ import annotations

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
    "(?i)a(?-i)b",
    "(?i)ä.*",
    "(?iu)ä.*",
    "(?iu)k",
    "(?i)[k-s]",
    "(?i)k|ſ",
    "(?s).*",
    ".*",
    "(?d).*",
    "(?m)^.",
    "(?m)^",
    "(?m).$",
    "(?m)$",
    "(?md)^|$",
    "$",
    "(?d)$",
    "^",
    r"\Z",
    r"\z",
    r".\z",
    r"\A.",
    r"(?x) a b # comment",
    "(?x)a\\ b|[a b]",
    r"\Qa+b.c*\E",
    r"CN=\Qa+b.c*\E,(.*)",
    r"\QCN=",
    r"[\Q[a]\E]+",
    r"\\Q",
    r"\p{L}+",
    r"\pL+",
    r"\PL+",
    r"\p{Lu}",
    r"\p{IsLu}",
    r"(?i)\p{Lu}",
    r"\p{gc=Nd}",
    r"\p{general_category=Ll}+",
    r"\p{LC}",
    r"\p{IsDigit}",
    r"\p{IsLetter}",
    r"\p{IsPunctuation}",
    r"\p{L1}+",
    *(
        rf"\p{{{name}}}+"
        for name in [
            *("Lower", "Upper", "ASCII", "Alpha", "Digit", "Alnum", "Punct", "Graph", "Print", "Blank", "Cntrl"),
            *("XDigit", "Space", "N", "Nl", "Lt", "M", "S", "Z", "P", "C", "So"),
        ]
    ),
    r"\P{Alpha}+",
    r"(?i)\p{Lower}+",
    r"[\p{L}&&[^\p{Lu}]]+",
    r"[^\p{Alpha}]",
    r"\h+",
    r"\H+",
    r"\v",
    r"\V+",
    r"[\h\v]+",
    r"[^\h]",
    r"\R",
    r"\w+",
    r"\W+",
    r"\d",
    r"\D+",
    r"\s+",
    r"\S+",
    r"[\w&&[^\d_]]+",
    r"[a-z&&[^m-p]]+",
    r"[a-c[m-z]]",
    r"[^a-c[m-z]]",
    r"[^a-z&&[abc]]",
    r"[a-z&&b-d&&c]",
    r"[a-z&&\w]",
    r"[]a]+",
    r"[a-]+",
    r"[-a]+",
    r"[a-[b]]+",
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
    r"(a)\11",
    r"(?<=a)b",
    r"(?<!a)b",
    r"a(?=b)",
    r"a(?!b)",
    r"\x41|\u0042|\x{1F600}|\uD83D\uDE00",
    r"\e\a|\cA|\041",
    r"\x{61}[\x61-\u0063]",
    r"\/|\,|\-",
    r"}|]",
    "((?i)a)b",
    "(a|(?i)b|c)c?",
    "|a",
    # what Java does not take either
    "(",
    ")",
    "[",
    "[a",
    "*",
    "a**",
    "{",
    "a{,2}",
    "[z-a]",
    r"\y",
    r"\p{Foo}",
    r"\k<x>",
    r"(?q)a",
    "\\",
    r"\xg",
    r"\08",
    "(?<1a>b)",
]


# What Java does and Python cannot: each is an error, never another meaning.
UNTRANSLATABLE = [
    r"\p{IsLatin}+",
    r"\p{InGreek}",
    r"\p{IsAlphabetic}",
    r"\p{javaLowerCase}",
    r"\X",
    r"\Ga",
    "(?U)a",
    "(?<=a{1,2})b",
    r"\2(a)(b)",
]


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


def test_patterns_match_and_replace_what_they_do_in_java() -> None:
    different = []
    for pattern, expected in zip(PATTERNS, of_java(PATTERNS), strict=True):
        answers = of_python(pattern)
        if "error" in (answers, expected):
            if answers != expected:
                different.append((pattern, "", answers[:5], expected[:5]))
            continue
        different += [
            (pattern, text, answer, java)
            for text, answer, java in zip(TEXTS, answers.split(), expected.split(), strict=True)
            # Java looks for nothing in the midst of a surrogate pair too.
            if answer != java and (text != "😀" or answer.partition("/")[0] != java.partition("/")[0])
        ]
    assert different == []


def test_what_only_java_can_say_is_refused() -> None:
    assert "error" not in of_java(UNTRANSLATABLE)
    assert {of_python(pattern) for pattern in UNTRANSLATABLE} == {"error"}
