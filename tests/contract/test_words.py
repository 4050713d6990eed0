"""The field's words: code, comments, messages and documents avoid phrases that a Kafka engineer has to read twice.

Say who does what: *client*, *connection*, *thread*, *caller*; *report*, *record*, *emit*, *notify*. Names of users and
other short strings in tests are not checked. A phrase is banned in every form that `BANNED` lists, also in a name such
as `test_nobody_waits`.
"""

import ast
import io
import re
import tokenize
from collections import Counter

import pytest

from tests.contract.source_rules import ROOT

FOLDERS = ("bench", "core", "docs", "examples", "plugins", "scripts", "spark", "tests", "tools")
GENERATED = {ROOT / "core/klamm/wire/messages", ROOT / "core/klamm/wire/coordinator_records"}
BANNED = {
    "told": "use reported, notified, returned",
    "tells": "use reports, shows, returns",
    "tell of": "use report",
    "nobody": "use no client, no thread, no caller",
    "anybody": "use any client",
    "somebody": "use another client, a process",
    "whoever": "use the caller, the client that",
    "who asks": "use the client, the caller",
    "stranger": "use unknown, third-party",
    "strangers": "use unknown users, third parties",
    "newcomer": "use new member, new connection",
    "newcomers": "use new members, new connections",
    "at leisure": "say how fast",
    "begun": "use started",
    "of its own accord": "say what causes it",
    "rubbish": "use garbage, invalid bytes",
    "anew": "use again, or say rewrite, recompress",
    "that there is not": "use missing",
    "as to": "use about, or a full clause",
    "that which": "name the thing",
}
_PHRASES = re.compile(
    rf"(?<![a-z])({'|'.join(phrase.replace(' ', '[ _]') for phrase in BANNED)})(?![a-z])", re.IGNORECASE
)
_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def prose(source):
    """Yield the line number and text of each comment, name, docstring and message. Strings without a space are data."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_data = token.type in _STRINGS and " " not in token.string
        if token.type in {tokenize.COMMENT, tokenize.NAME, *_STRINGS} and not is_data:
            yield from enumerate(token.string.splitlines(), token.start[0])


def findings(source, *, is_python):
    """Yield `LINE: PHRASE (what to write instead)` for each banned phrase."""
    lines = prose(source) if is_python else enumerate(source.splitlines(), 1)
    for number, line in lines:
        for found in _PHRASES.finditer(line):
            phrase = found[1].lower().replace("_", " ")
            yield f"{number}: {phrase} ({BANNED[phrase]})"


HEADS = {"As", "How", "Of", "What", "When", "Where", "Whether", "Which", "Who", "Why"}
"""Words with which no docstring begins, because a docstring begins with its verb ("Return") or names the thing."""
HEADS_LEFT = {"bench": 0, "core": 1, "examples": 0, "plugins": 0, "scripts": 0, "spark": 0, "tools": 0}
"""The number of docstrings in each folder that begin with such a word. Lower a number, but do not raise it."""


def heads(source):
    """Yield the first words of docstrings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield re.split(r"[\s,:]", text, maxsplit=1)[0]


def test_no_docstring_begins_with_a_question_word():
    found = Counter()
    for folder in HEADS_LEFT:
        for path in (ROOT / folder).rglob("*.py"):
            if GENERATED.isdisjoint(path.parents):
                found[folder] += sum(head in HEADS for head in heads(path.read_text(encoding="utf-8")))
    assert found.keys() == HEADS_LEFT.keys()
    assert {folder: count for folder, count in found.items() if count > HEADS_LEFT[folder]} == {}, (
        "put the verb first: Return …, Append …; or name the thing"
    )


def sources():
    """Yield the path and text of each file of code and each document."""
    paths = [ROOT / "README.md"]
    for folder in FOLDERS:
        paths += (ROOT / folder).rglob("*.py")
        paths += (ROOT / folder).rglob("*.md")
    for path in sorted(paths):
        if GENERATED.isdisjoint(path.parents) and path.name != "test_words.py":
            yield path, path.read_text(encoding="utf-8")


def test_code_and_documents_use_the_fields_words():
    found = [
        f"{path.relative_to(ROOT)}:{finding}"
        for path, text in sources()
        for finding in findings(text, is_python=path.suffix == ".py")
    ]
    assert found == [], "\n".join(["words to replace:", *found])


DOUBLED = re.compile(r"(?<![\w.`*\"/-])([A-Z]?[a-z]{2,}) \1(?![\w`*\"/:-])")
"""A word twice in a row, which replacements in many files can leave behind."""


def test_no_word_stands_twice_in_a_row():
    found = []
    for path, text in sources():
        # Commands can rightly repeat a word: klamm certs certs.
        without_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        lines = (line for _, line in prose(text)) if path.suffix == ".py" else without_code.splitlines()
        found += [f"{path.relative_to(ROOT)}: {line.strip()}" for line in lines if DOUBLED.search(line)]
    assert found == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("# Whoever comes now is served.", 1),
        ("def test_nobody_waits(): ...", 1),
        ('"""The client is told."""', 1),
        ('raise ValueError(f"{name} tells nobody")', 2),
        ('user = "nobody"', 0),
        ("foretold = untold = estranged = 1", 0),
        ("# The thread has begun.\nx = 1", 1),
    ],
)
def test_phrases_are_found_in_prose_and_names(source, count):
    assert len(list(findings(source, is_python=True))) == count


def test_a_document_is_checked_line_by_line():
    assert list(findings("One.\nStrangers come in.\n", is_python=False)) == [f"2: strangers ({BANNED['strangers']})"]
