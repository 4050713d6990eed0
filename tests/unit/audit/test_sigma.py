"""Tests of Sigma rules: what each word finds, errors of invalid rules, and the compiled rules of klamm."""

import json
import re
import sys
from pathlib import Path

import pytest

from klamm_spark.cli import main
from klamm_spark.errors import LakeError
from klamm_spark.findings.detections import FOLDERS, Rules, own_detections, read_detections
from klamm_spark.findings.sigma import KEYS, RULES, compiled
from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.spool.layout import OPEN_SUFFIX, SegmentName
from tests.audit_samples import sample_events
from tests.unit.audit.sigma_rules import EVENTS, LOG_SOURCE, found_by, numbered, one_attack, write_rules
from tests.unit.audit.test_detect import ATTACK, Spool, detect
from tests.unit.audit.test_detections import BOOT, failures
from tools import generate_detections

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 15), reason="pySigma does not run on it")


@pytest.fixture
def views_of(tmp_path):
    """Return a function that puts events into DuckDB."""
    made = []

    def load(events):
        path = tmp_path / (SegmentName(BOOT, 0).stem + OPEN_SUFFIX)
        path.write_text("".join(json.dumps(one) + "\n" for one in events))
        made.append(DuckDbViews(None, Period()))
        made[-1].add([str(path)])
        return made[-1]

    yield load
    for views in made:
        views.close()


@pytest.fixture
def rules(tmp_path):
    """Return `rules(text)`, which writes a folder with one file."""
    folder = tmp_path / "rules"
    folder.mkdir()

    def write(text):
        (folder / "own.yml").write_text(text)
        return folder

    return write


def test_each_word_of_sigma_finds_its_events(tmp_path, views_of):
    wanted = write_rules(tmp_path)
    views = views_of(numbered(EVENTS))
    assert {one.name: found_by(one.name, one.run(views)) for one in compiled(tmp_path)} == wanted


def test_klamms_rules_are_the_compiled_ones(monkeypatch):
    monkeypatch.setattr("sys.argv", ["generate", "--check"])
    assert generate_detections.main() == 0
    own = {one.name for one in read_detections(FOLDERS[1])}
    assert len(own) == 20
    assert {path.stem for path in RULES.glob("*.yml")} - {"logins"} == own


LOG_SOURCE_LINE = LOG_SOURCE.replace("{", "{{").replace("}", "}}")


def test_each_rule_finds_its_attack(views_of):
    views = views_of(one_attack())
    assert [one.name for one in own_detections() if not one.run(views)] == []


RULE = f"title: T\nname: mine\n{LOG_SOURCE_LINE}" + "detection:\n  s:\n    {}\n  condition: s\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (RULE.format("principl: x"), ':6: the log source has no field "principl"; did you mean "principal"?'),
        (
            RULE.format("resource.nme: x"),
            ':6: the log source has no field "resource.nme"; did you mean "resource.name"?',
        ),
        (RULE.format("kind: [a"), ":7: "),
        (RULE.format("kind: a\n    kind: b"), ":6: Duplicate key 'kind'"),
        (RULE.format("kind|lke: a"), ":6: Unknown modifier 'lke'"),
        (RULE.format("kind: a") + "level: grave\n", ":8: 'grave' is not a valid Sigma rule level"),
        (RULE.format("kind: a").replace("kafka", "zeek"), ':3: the log source is "product": "kafka"'),
        (RULE.format("kind: a").replace("condition: s", "condition: t"), ":7: "),
        (RULE.format("kind: a") + "klamm: {sentense: x}\n", ':8: the section klamm has no key "sentense"; did you'),
        (RULE.format("kind: a") + "klamm: {key: who}\n", ':8: a finding has no "who"'),
        (RULE.format("kind: a") + "klamm: {object: adress}\n", ':8: the log source has no field "adress"'),
        (RULE.format("kind: a") + "klamm: 3\n", ':8: the section "klamm" is a mapping'),
        (RULE.format("kind: a") + "---\n" + RULE.format("kind: b"), ':2: another rule has the name "mine"'),
        (RULE.format("kind: a").replace("    kind: a", "    - a"), ":1: a value needs the field that has it"),
        ("- a\n", ":1: a rule is a mapping of keys and values"),
        ("title: T\ncorrelation: {type: event_count, rules: none, timespan: 1m, condition: {gte: 1}}\n", ":2: "),
        ("title: T\ncorrelation: {type: event_cont, rules: none, timespan: 1m, condition: {gte: 1}}\n", ":2: "),
        (
            RULE.format("kind: a")
            + "---\ntitle: C\nname: c\ncorrelation: {type: value_median, rules: mine, timespan: 1m, "
            "condition: {gte: 1, field: kind}}\n",
            "value_median are not supported",
        ),
        (
            RULE.format("kind: a")
            + "---\ntitle: C\nname: c\ncorrelation: {type: event_count, rules: mine, group-by: who, timespan: 1m, "
            "condition: {gte: 1}}\n",
            ':11: the log source has no field "who"',
        ),
    ],
)
def test_an_invalid_rule_is_named_with_its_place(rules, text, problem):
    folder = rules(text)
    with pytest.raises(LakeError) as caught:
        compiled(folder)
    assert str(caught.value).startswith(f"{folder / 'own.yml'}:")
    assert problem in str(caught.value)


def test_a_folder_without_rules_is_named(tmp_path):
    with pytest.raises(LakeError, match="has no Sigma rules"):
        compiled(tmp_path)
    with pytest.raises(LakeError, match="is no folder"):
        compiled(tmp_path / "none")


MINE = (
    f"title: A login\nname: any_login\nlevel: informational\n{LOG_SOURCE}"
    "detection:\n  s:\n    action: success\n  condition: s\n"
)
FILTER = (
    f"title: The scanner\n{LOG_SOURCE}filter:\n  rules: [failed_login, refused_login]\n"
    "  scanner:\n    client_address: 10.9.9.9\n  condition: not scanner\n"
)


def test_rules_and_filters_of_a_folder_are_added_to_klamms(tmp_path, rules, capsys):
    spool = Spool(tmp_path / "spool")
    spool.write([*ATTACK, *failures(6, address="10.9.9.9", names="abcdef")])
    assert sorted(printed(capsys, spool.path)) == sorted([*BOTH, "critical Login after many failures"])
    folder = rules(f"{MINE}---\n{FILTER}")
    found = printed(capsys, spool.path, "--rules", folder)
    assert found == [
        "critical Login after many failures",
        "high Brute force",
        "high Password spraying",
        "low A login",
    ]


BOTH = ["high Brute force", "high Password spraying"] * 2


def printed(capsys, *arguments):
    code, out, err = detect(capsys, *arguments, "--format", "ocsf")
    assert (code, err) == (0, "")
    names = {2: "low", 3: "medium", 4: "high", 5: "critical"}
    found = map(json.loads, out.splitlines())
    return [f"{names[one['severity_id']]} {one['finding_info']['title']}" for one in found]


def test_filters_remove_unwanted_findings(tmp_path, capsys):
    spool, file = Spool(tmp_path / "spool"), tmp_path / "klamm.toml"
    spool.write([*ATTACK, *failures(6, address="10.9.9.9", names="abcdef")])
    ignore = '{ brute_force = ["10.9.*"], password_spraying = ["*"] }'
    file.write_text(f'[audit]\nspool = "spool"\n[audit.detect]\nignore = {ignore}\n')
    assert printed(capsys, file) == ["critical Login after many failures", "high Brute force"]
    file.write_text('[audit]\nspool = "spool"\n[audit.detect]\nignore = { brut_force = ["*"] }\n')
    assert main(["detect", str(file)]) == 2
    assert 'no detection has the name "brut_force"; did you mean "brute_force"?' in capsys.readouterr().err


def test_normal_traffic_fires_no_critical_rule(views_of):
    day_us = 86_400_000_000
    views = views_of(sample_events(20_000, step_us=day_us // 20_000))
    found = {(one.severity, one.name) for one, _ in Rules().findings(views)}
    # The samples have gaps in their trail, and old clients.
    assert {name for severity, name in found if severity in ("critical", "high")} <= {"missing_events"}
    assert ("low", "deprecated_client") in found
    assert len(own_detections()) > len(found)


PAGE = (Path(__file__).parents[3] / "docs" / "audit" / "sigma.md").read_text()


def test_the_page_has_each_field_and_its_examples_are_rules(rules):
    from klamm_spark.findings.sigma_fields import TYPES

    fields = {name for name in TYPES if name.startswith("resource.")}
    assert {name for name in fields if f"`{name}`" not in PAGE} == set()
    assert {name for name in KEYS if f"`{name}`" not in PAGE} == set()
    folder = rules("---\n".join(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)))
    assert [(one.name, one.severity) for one in compiled(folder)] == [("contractor_reads", "high")]
