"""Tests of prefixes, names, ids, expressions and messages of tenants."""

import itertools
import random

import pytest
import re2

from klamm import ANONYMOUS, KafkaError, KafkaPrincipal
from klamm_filters.tenancy.tenancy_settings import (
    TopicPrefixSettings,
    _check_prefix,
    _check_prefixes,
    overlap,
    prefix_of,
)
from klamm_filters.tenancy.tenant import ForeignNameError, Tenant, TopicIds

A = Tenant("a.", b"")

# ---- prefixes


@pytest.mark.parametrize(
    ("prefix", "right"),
    [
        ("", True),
        ("a.", True),
        ("{principal}-", True),
        ("x-{principal}.", True),
        ("{principal}", False),
        ("x{principal}", False),
        ("{principal}{principal}-", False),
        ("{user}-", False),
        ("a b", False),
        ("ä", False),
        ("__", False),
    ],
)
def test_prefixes_are_checked(prefix, right):
    assert (_check_prefix(prefix) is None) == right


@pytest.mark.parametrize(
    ("prefixes", "right"),
    [
        ({"User:a": "a.", "User:b": "b."}, True),
        ({"User:a": "same.", "User:b": "same."}, True),
        ({"User:a": "a", "User:b": "ab"}, False),
        ({"User:a": "a.x", "User:b": "a_x"}, False),
        ({"a": "a."}, False),
        ({"User:a": ""}, False),
    ],
)
def test_prefixes_of_principals_do_not_overlap(prefixes, right):
    assert (_check_prefixes(prefixes) is None) == right


def test_problems_of_settings_are_reported(tmp_path):
    def problems(**settings):
        return [key for key, _ in TopicPrefixSettings(**settings).problems()]

    short = tmp_path / "short"
    short.write_bytes(bytes(31))
    assert problems() == [""]
    assert problems(prefix="a", principals={"User:x": "ab"}) == ["principals.User:x"]
    assert problems(prefix="a.", principals={"User:x": "a.", "User:y": "b."}) == []
    assert problems(prefix="a.", topic_id_secret_file=short) == ["topic_id_secret_file"]
    assert problems(prefix="a.", topic_id_secret_file=tmp_path / "none") == ["topic_id_secret_file"]


@pytest.mark.parametrize(
    ("principal", "prefix"),
    [
        (KafkaPrincipal("bob"), "t-bob."),
        (KafkaPrincipal("bo-b"), "t-bo-b."),
        (KafkaPrincipal("alice"), "team."),
        (KafkaPrincipal("bo.b"), None),
        (KafkaPrincipal("bo_b"), None),
        (KafkaPrincipal("bo b"), None),
        (KafkaPrincipal(""), None),
        (KafkaPrincipal("bob", "Group"), None),
        (ANONYMOUS, None),
    ],
)
def test_a_prefix_may_contain_the_principal(principal, prefix):
    settings = TopicPrefixSettings(prefix="t-{principal}.", principals={"User:alice": "team."})
    assert prefix_of(settings, principal) == prefix


def test_prefixes_of_any_principals_do_not_overlap():
    names = ["".join(one) for size in range(1, 5) for one in itertools.product("ab-_.", repeat=size)]
    for template in ("{principal}-", "{principal}.", "{principal}_", "x{principal}-x"):
        settings = TopicPrefixSettings(prefix=template, principals={"User:table": "aa-b"})
        found = sorted({prefix for one in names if (prefix := prefix_of(settings, KafkaPrincipal(one)))} | {"aa-b"})
        folded = sorted(one.replace(".", "_") for one in found)
        assert len(folded) > 10
        # If one text begins with another, they are adjacent in sorted order.
        assert not any(overlap(one, other) for one, other in itertools.pairwise(folded)), template


# ---- ids


def test_topic_ids_are_permuted_by_tenant():
    rng = random.Random(1)
    ids = [rng.randbytes(16) for _ in range(500)]
    first, again, other, secret = TopicIds(b"", "a."), TopicIds(b"", "a."), TopicIds(b"", "b."), TopicIds(b"s", "a.")
    for one in ids:
        seen = first.to_client(one)
        assert first.to_broker(seen) == one
        assert again.to_client(one) == seen
        assert len({one, seen, other.to_client(one), secret.to_client(one)}) == 4
        assert other.to_broker(seen) not in ids
    assert first.to_client(bytes(16)) == first.to_broker(bytes(16)) == bytes(16)


# ---- names and messages


def test_names_get_and_lose_the_prefix():
    assert A.strip(A.add("x")) == "x"
    assert [name for name in ("a.", "a.x", "a", "ab", "") if A.owns(name)] == ["a.", "a.x"]
    assert A.strip_or_hide("b.x") == ""
    with pytest.raises(ForeignNameError):
        A.strip("b.x")


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        ("Topic 'a.orders' already exists.", "Topic 'orders' already exists."),
        ("a.orders and a.payments", "orders and payments"),
        ("data.x is not a. name, a.", "data.x is not a. name, a."),
        ("", ""),
    ],
)
def test_messages_lose_the_prefix(message, seen):
    assert A.text(message) == seen


# ---- expressions


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("orders", ["a.orders"], ["orders", "a_orders", "a.orders2", "b.orders"]),
        ("^ord.*$", ["a.orders"], ["a.xord", "ord"]),
        ("x|y", ["a.x", "a.y"], ["y", "b.y"]),
        ("(?i)X", ["a.x", "a.X"], ["A.x"]),
        (".*", ["a.", "a.x"], ["b.x", "x"]),
        ("[^x]+", ["a.y"], ["a.x", "by"]),
        (r"\^x", ["a.^x"], ["x"]),
        ("(^x)|(^y)", ["a.x", "a.y"], ["x", "a.^x", "b.y"]),
        ("a|^b", ["a.a", "a.b"], ["b"]),
        ("(?i)^(?:X|^y)$", ["a.x", "a.Y"], ["y"]),
        ("[[:alpha:]^]", ["a.^", "a.x"], ["a.1"]),
        ("[]^]x", ["a.]x", "a.^x"], ["x"]),
    ],
)
def test_an_expression_matches_own_names_alone(pattern, names, others):
    sent = A.pattern_to_broker(pattern)
    assert all(re2.fullmatch(sent, name) for name in names)
    assert not any(re2.fullmatch(sent, name) for name in others)
    assert A.pattern_to_broker(A.pattern_to_client(sent)) == sent


@pytest.mark.parametrize(
    "pattern",
    [
        "x)|(?:.*",
        "(",
        "x)|.*(",
        r"\Q)|.*",
        r"x\E)|.*",
        "a^b",
        "x(^a)",
        "(a|b)^",
        r"\Ax",
        r"[\Q]",
        "[",
        "x\\",
        ")",
        "^*",
        "(?:",
        "x))|((.*",
    ],
)
def test_an_expression_that_could_leave_the_prefix_is_refused(pattern):
    with pytest.raises(KafkaError, match="INVALID_REGULAR_EXPRESSION"):
        A.pattern_to_broker(pattern)


def test_no_expression_leaves_the_prefix():
    rng = random.Random(7)
    pieces = ["x", "(", ")", "|", ".*", "[", "]", "^", "$", "\\", "Q", "E", "?", "(?:", "(?i)", "{2}", "[^", ":", "-"]
    sent = 0
    for _ in range(5000):
        pattern = "".join(rng.choices(pieces, k=rng.randint(1, 8)))
        try:
            prefixed = A.pattern_to_broker(pattern)
        except KafkaError:
            continue
        sent += 1
        compiled = re2.compile(prefixed)
        assert not any(compiled.fullmatch(name) for name in ("x", "b.x", "", "xx", "ax", "a_x", ")")), pattern
    assert sent > 250


def test_expressions_of_other_tenants_are_hidden():
    assert A.pattern_to_client("b\\.(?:x)") == ""
