"""Tests of rules that map principals to names, with the cases of Kafka's documentation and tests."""

import pytest

from klamm_sasl.kerberos_names import KerberosShortNamer, NoMatchingRuleError, parse_rule

REALM = "EXAMPLE.COM"


def short(principal, *rules):
    return KerberosShortNamer(rules, REALM).short_name(principal)


@pytest.mark.parametrize(
    ("principal", "rule", "name"),
    [
        ("alice@EXAMPLE.COM", "DEFAULT", "alice"),
        ("kafka/host@EXAMPLE.COM", "DEFAULT", "kafka"),
        ("alice", "DEFAULT", "alice"),
        ("App.service-name/example.com@REALM.COM", "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g", "service-name"),
        ("App.service-name/example.com@REALM.COM", "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g/L", "service-name"),
        ("user@MYDOMAIN.COM", "RULE:[1:$1@$0](.*@MYDOMAIN.COM)s/@.*//", "user"),
        ("User@REALM.COM", "RULE:[1:$1]/L", "user"),
        ("User@REALM.COM", "RULE:[1:$1]/U", "USER"),
        ("user@REALM.COM", "RULE:[1:$1](.*)s/^.*$/nobody/", "nobody"),
        ("user@REALM.COM", "RULE:[1:$1-$0]", "user-REALM.COM"),
        ("aaa@REALM.COM", "RULE:[1:$1]s/a/b/", "baa"),
        ("aaa@REALM.COM", "RULE:[1:$1]s/a/b/g", "bbb"),
        ("hdfs/node@REALM.COM", "RULE:[2:$1-$2]", "hdfs-node"),
        ("Duke@REALM.COM", r"RULE:[1:$1](\p{Upper}.*)s/^(?i)d(.*)/\$$1/", "$uke"),
    ],
)
def test_a_rule_maps_a_principal(principal, rule, name):
    assert short(principal, rule) == name


def test_the_first_matching_rule_applies():
    rules = ("RULE:[2:$1]", "RULE:[1:$1](a.*)s/a/x/", "DEFAULT")
    assert short("service/host@OTHER", *rules) == "service"
    assert short("alice@OTHER", *rules) == "xlice"
    assert short("bob@EXAMPLE.COM", *rules) == "bob"
    with pytest.raises(NoMatchingRuleError):
        short("bob@OTHER", *rules)


@pytest.mark.parametrize(
    ("principal", "rule"),
    [
        ("alice@OTHER.COM", "DEFAULT"),
        ("alice@EXAMPLE.COM", "RULE:[2:$1]"),
        ("alice@EXAMPLE.COM", "RULE:[1:$1@$0]"),
        ("a/b/c@EXAMPLE.COM", "DEFAULT"),
        ("a/b", "DEFAULT"),
        ("alice@A@B", "DEFAULT"),
    ],
)
def test_a_principal_without_a_matching_rule_has_no_name(principal, rule):
    with pytest.raises(NoMatchingRuleError):
        short(principal, rule)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "default",
        "RULE:[1:$1]x",
        "RULE:[:$1]",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[1:$1](",
        "RULE:[1:$1]([)",
        "DEFAULT/L",
    ],
)
def test_text_that_is_not_a_rule_is_refused(rule):
    with pytest.raises(ValueError, match="."):
        parse_rule(rule)
