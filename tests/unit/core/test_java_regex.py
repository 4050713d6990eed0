"""Tests of `compile_java` and `java_replacement`. tests/oracles compares them with Java itself."""

import pytest

from klamm.shared import JavaRegexError, compile_java, java_replacement


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^(?i)cn=a", "CN=A", "CN=Ä"),
        ("(?i)ä", "ä", "Ä"),
        ("(?i:ab)c", "aBc", "aBC"),
        ("a(?i)b|c", "C", "AB"),
        ("((?i)a)b", "Ab", "AB"),
        (r"\Qa.b\E", "a.b", "axb"),
        (r"\w\d\s", "a1 ", "ä1 "),
        (r"\d", "1", "١"),
        (r"\p{Alpha}", "a", "ä"),
        (r"\P{Lower}", "ä", "a"),
        (r"a\z", "a", "a\n"),
        ("[a-z&&[^m-p]]", "a", "n"),
        (r"[^\p{Alpha}]", "ä", "b"),
        ("a.b", "a\tb", "a\rb"),
        ("(?<x>a)\\k<x>", "aa", "ab"),
        (r"(a)\1", "aa", "ab"),
        ("a?+b", "ab", "aab"),
        ("(?>a|ab)c", "ac", "abc"),
    ],
)
def test_a_pattern_matches_the_same_as_in_java(pattern, matching, other):
    compiled = compile_java(pattern)
    assert compiled.fullmatch(matching)
    assert not compiled.fullmatch(other)


@pytest.mark.parametrize(
    ("pattern", "construct", "character"),
    [
        (r"\p{IsLatin}", r"\p{IsLatin}", 1),
        (r"CN=\p{L}+", r"\p{L}", 4),
        (r"a\Gb", r"\G", 2),
        (r"a\b", r"\b", 2),
        (r"(a)\11", r"\1", 4),
        ("(?U)a", "(?U)", 1),
        ("a(?s:.)", "(?s:", 2),
        ("[a-c[m-z]]", "[", 1),
        ("x{", "{", 2),
        ("a\\", "\\", 2),
    ],
)
def test_constructs_without_a_translation_are_named_with_their_place(pattern, construct, character):
    with pytest.raises(JavaRegexError) as caught:
        compile_java(pattern)
    assert str(caught.value) == f'"{pattern}": {construct} at character {character} has no translation'


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?i)(a", r"unterminated subpattern at character 5"),
        ("a)", "unbalanced parenthesis at character 2"),
        ("a[b-a]", "bad character range b-a at character 2"),
        (r"\1(a)", "invalid group reference 1 at character 1"),
        ("(?<=a+)b", "fixed-width"),
        ("(?i)a**", "multiple repeat at character 7"),
        ("*", "nothing to repeat at character 1"),
    ],
)
def test_an_invalid_pattern_raises_one_clear_error(pattern, why):
    with pytest.raises(JavaRegexError, match=why):
        compile_java(pattern)


def test_a_replacement_uses_as_many_digits_as_a_group_has():
    pattern = compile_java("(?<first>.)(.)")
    assert java_replacement(r"$2${first}$12\$x$0", pattern)("ab") == "baa2$xab"
    assert java_replacement("$3", pattern, keep_unknown=True)("ab") == "$3"
    for text in ("$3", "${second}", "$", "a\\"):
        with pytest.raises(JavaRegexError):
            java_replacement(text, pattern)


def test_replacing_continues_after_a_match_as_in_java():
    assert java_replacement("<$0>", compile_java("|a"))("aa") == "<>a<>a<>"
    assert java_replacement("<$0>", compile_java("a*"))("ba") == "<>b<a><>"
    assert java_replacement("x", compile_java("^a"))("aa") == "xa"
    assert java_replacement("x", compile_java("a"), first_only=True)("aa") == "xa"
