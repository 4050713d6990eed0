"""`compile_java` and `java_replacement`; tests/oracles compares them with Java itself."""

import pytest

from klamm.shared import JavaRegexError, compile_java, java_replacement


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^(?i)cn=a", "CN=A", "CN=Ä"),
        ("(?i)ä", "ä", "Ä"),
        ("(?iu)ä", "Ä", "A"),
        ("a(?i)b|c", "C", "AB"),
        ("((?i)a)b", "Ab", "AB"),
        (r"\Qa.b\E", "a.b", "axb"),
        (r"[\Q]^\E]", "^", "a"),
        (r"\w\d\s", "a1 ", "ä1 "),
        (r"\d", "1", "١"),
        (r"\p{L}", "ä", "1"),
        (r"\p{Alpha}", "a", "ä"),
        (r"\P{Lu}", "a", "Ä"),
        (r"a\h\z", "a\u00a0", "a\n"),
        ("[a-z&&[^m-p]]", "a", "n"),
        ("[^a[bc]]", "d", "b"),
        ("(?x)a b #c", "ab", "a b "),
        ("a.b", "a\tb", "a\rb"),
        ("(?s)a.b", "a\nb", "ab"),
        ("(?<x>a)\\k<x>", "aa", "ab"),
        ("a?+b", "ab", "aab"),
    ],
)
def test_a_pattern_means_what_it_means_in_java(pattern, matching, other):
    compiled = compile_java(pattern)
    assert compiled.fullmatch(matching)
    assert not compiled.fullmatch(other)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\p{IsLatin}", "IsLatin"),
        (r"\G", "cannot be had"),
        ("(?U)a", "cannot be had"),
        ("(a", "without a"),
        ("a)", "without a"),
        ("[a", "without a"),
        ("{", "no repetition"),
        ("[b-a]", "no range"),
        (r"\1(a)", "not there"),
        ("(?<=a+)b", "fixed-width"),
        ("a\\", "last backslash"),
        ("*", "nothing to repeat"),
    ],
)
def test_what_has_no_meaning_here_is_one_clear_error(pattern, why):
    with pytest.raises(JavaRegexError, match=why):
        compile_java(pattern)


def test_a_replacement_takes_as_many_digits_as_name_a_group():
    pattern = compile_java("(?<first>.)(.)")
    assert java_replacement(r"$2${first}$12\$x$0", pattern)("ab") == "baa2$xab"
    assert java_replacement("$3", pattern, keep_unknown=True)("ab") == "$3"
    for text in ("$3", "${second}", "$", "a\\"):
        with pytest.raises(JavaRegexError):
            java_replacement(text, pattern)


def test_replacing_goes_on_after_a_match_as_java_does():
    assert java_replacement("<$0>", compile_java("|a"))("aa") == "<>a<>a<>"
    assert java_replacement("<$0>", compile_java("a*"))("ba") == "<>b<a><>"
    assert java_replacement("x", compile_java("^a"))("aa") == "xa"
    assert java_replacement("x", compile_java("a"), first_only=True)("aa") == "xa"
