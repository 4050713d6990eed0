"""Tests of `ssl.principal.mapping.rules`, in comparison with Kafka's `SslPrincipalMapper`."""

import pytest

from klamm_ssl.principal_mapper import InvalidRuleError, NoMatchingRuleError, SslPrincipalMapper

SEVERAL = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        (SEVERAL, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (SEVERAL, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (SEVERAL, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (SEVERAL, "OU=JavaSoft,CN=Duke.x,O=S", "DUKE.X"),
        (SEVERAL, "O=only,OU=these", "O=only,OU=these"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/$1/L,DEFAULT", "CN=ÄRGER", "ärger"),
        (r"RULE:^CN=([^,ADEFLTU,]+)(.*$|,.*$)/$1/", "CN=test,O=x", "test"),
        (r"RULE:^CN=([^,DEFAULT,]+)(.*$|,.*$)/$1/", "CN=test,O=x", "test"),
        (r"RULE:^CN=(.*)\/(.*)$/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:^CN=(.*)$/$1@$2/", "CN=a", "a@$2"),
        ("RULE:^CN=(.*)$/$1$12/", "CN=a", "aa2"),
        ("RULE:^CN=(.*)$/$0!/", "CN=a", "CN=a!"),
        ("RULE:^CN=(.*)$/$0012/", "CN=a", "CN=a012"),
        (r"RULE:^CN=(.*)$/\$1 \\ $1/", "CN=a", r"$1 \ a"),
        ("RULE:^CN=(?<who>.*?)(,.*)?$/${who}-x/", "CN=a,O=b", "a-x"),
        ("RULE:(a)|(b)/$1$2/", "b", "b"),
        ("RULE:CN=.*/someone/", "CN=a", "someone"),
        ("RULE:(.*)/<$1>/", "CN=a", "<CN=a><>"),
        ("  RULE:^CN=(.*)$/$1/U  ,  DEFAULT  ", "CN=a", "A"),
        (",,RULE:^CN=(.*)$/$1/,,", "CN=a", "a"),
        ("RULE:^(?i)cn=(.*?),.*$/$1/,DEFAULT", "CN=Duke,O=x", "Duke"),
        (r"RULE:^CN=\Qa+b.c\E,O=(\p{Alpha}+)$/$1/,DEFAULT", "CN=a+b.c,O=org", "org"),
        (r"RULE:^CN=([^,]+)\z/$1/,DEFAULT", "CN=Ärger", "Ärger"),
        (r"RULE:^CN=(\w+)$/$1/,DEFAULT", "CN=Ärger", "CN=Ärger"),
        (r"RULE:^CN=([a-z&&[^x]]+)\s(.*)$/$1.$2/,DEFAULT", "CN=a b", "a.b"),
    ],
)
def test_the_first_matching_rule_names_the_principal(rules, name, principal):
    assert SslPrincipalMapper(rules).name(name) == principal


@pytest.mark.parametrize("rules", ["RULE:^CN=(.*),OU=x$/$1/", "RULE:CN/x/", ""])
def test_a_name_that_no_rule_maps_has_no_principal(rules):
    with pytest.raises(NoMatchingRuleError, match="CN=a"):
        SslPrincipalMapper(rules).name("CN=a")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(.*$/$1/",
        "RULE:^CN=.*$/$1/",
        "RULE:^CN=(.*)$/${who}/",
        "RULE:^CN=(.*)$/a$/",
        r"RULE:^CN=(\p{IsLatin}+)$/$1/",
    ],
)
def test_text_that_is_not_a_rule_is_refused_at_once(rules):
    with pytest.raises(InvalidRuleError):
        SslPrincipalMapper(rules)
