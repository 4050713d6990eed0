"""Each detection fires on its attack and not on similar normal events. The events are in a spool; there is no Spark."""

import itertools
import json
from pathlib import Path

import pytest

from klamm_spark.findings.detections import SEVERITIES, own_detections, read_detection
from klamm_spark.queries.event_views import NO_LIMIT_US, DuckDbViews, Period
from klamm_spark.spool.layout import OPEN_SUFFIX, SegmentName

BOOT = "019b8ff8d000c0ffee00"
MINUTE = 60
HOUR = 3600
DAY = 86_400
START_S = 1_767_225_600
"""2026-01-01 00:00 UTC."""
DETECTIONS = {detection.name: detection for detection in own_detections()}


def event(at_s, kind, action, outcome="ok", **fields):
    return {
        "schema_version": 2,
        "node": "n",
        "boot": BOOT,
        "time_us": round((START_S + at_s) * 1e6),
        "kind": kind,
        "action": action,
        "outcome": outcome,
        **fields,
    }


def login(at_s, address="10.0.0.1", principal="User:a", *, failed=False, listener="front"):
    claimed = {"attempted_principal": principal, "principal": "User:ANONYMOUS"} if failed else {"principal": principal}
    action, outcome = ("failure", "denied") if failed else ("success", "ok")
    return event(at_s, "authentication", action, outcome, listener=listener, client_address=address, **claimed)


def request(at_s, api, number, *resources, principal="User:a", outcome="ok", action="completed", **fields):
    known = {"api_name": api, "api_key": number, "principal": principal, "client_address": "10.0.0.1", "error_code": 0}
    return event(at_s, "request", action, outcome, **known, resources=list(resources), **fields)


def topic(name, **fields):
    return {"type": "TOPIC", "name": name, **fields}


def grant(at_s, name="secret", grantee="User:b", operation="READ", permission="ALLOW"):
    binding = {"principal": grantee, "operation": operation, "permission": permission}
    attributes = [{"name": key, "value": value} for key, value in binding.items()]
    return request(at_s, "CreateAcls", 30, topic(name, attributes=attributes))


def fetch(at_s, name="secret", principal="User:b", size=2 << 20, **fields):
    return request(at_s, "Fetch", 1, topic(name, granted=True, bytes=size), principal=principal, **fields)


def named(at_s, api, number, kind, name, attributes, **fields):
    """Return a change of a resource that is not a topic. Each attribute has its name, and a value or fields."""
    listed = [{"name": key, **(value if isinstance(value, dict) else {"value": value})} for key, value in attributes]
    return request(at_s, api, number, {"type": kind, "name": name, "attributes": listed}, **fields)


def revoke(at_s, name="secret", grantee="User:b", binding="DELETE"):
    about = {"principal": grantee, "operation": "READ", "permission": "ALLOW", "binding": {"operation": binding}}
    return named(at_s, "DeleteAcls", 31, "TOPIC", name, about.items())


def scram(at_s, user="eve", operation="UPSERT"):
    about = {"mechanism": {"value": "SCRAM-SHA-512", "operation": operation}}
    return named(at_s, "AlterUserScramCredentials", 51, "USER", user, about.items())


def token(at_s, owner, **fields):
    about = {"owner": owner, "expiry_timestamp_ms": "1767312000000"}
    return named(at_s, "CreateDelegationToken", 38, "DELEGATION_TOKEN", "t1", about.items(), **fields)


def fenced(at_s, error="PRODUCER_FENCED"):
    return request(at_s, "Produce", 0, topic("t"), outcome="error", error_name=error, client_id="writer")


def changed(key, new, old):
    """Return an attribute that was changed, as a server records it."""
    values = {"value": new, "old_value": old, "new_value": new, "operation": "SET" if new else "DELETE"}
    return key, {name: value for name, value in values.items() if value is not None}


def configure(at_s, key, new, old, **fields):
    about = [changed(f"config.{key}", new, old)]
    return named(at_s, "IncrementalAlterConfigs", 44, "TOPIC", "t", about, **fields)


def quota(at_s, new, old):
    about = [("entity", "user=b"), changed("quota.producer_byte_rate", new, old)]
    return named(at_s, "AlterClientQuotas", 49, "USER", "b", about)


def elected(how):
    return topic("t", attributes=[{"name": "election_type", "value": how}])


def commit(at_s, generation):
    return named(at_s, "OffsetCommit", 8, "GROUP", "g", [("generation", str(generation))])


def failures(count, every_s=10, address="10.0.0.1", names=("a",), start_s=0):
    """Return failed logins, one after another, of the names in turn."""
    names = itertools.cycle(names)
    return [login(start_s + n * every_s, address, f"User:{next(names)}", failed=True) for n in range(count)]


def hours(days, hour):
    return [request(day * DAY + hour * HOUR, "Produce", 0, topic("t")) for day in range(days)]


SOME = [fetch(n, size=10, principal="User:c") for n in range(150)]
CASES = {
    "brute_force": (
        [failures(5), failures(5, every_s=75), [*SOME, *failures(9)]],
        [failures(4), failures(20, every_s=80), [failures(1, address=f"10.0.0.{n}")[0] for n in range(9)]],
    ),
    "password_spraying": (
        [
            failures(5, names="abcde"),
            failures(5, every_s=120, names="abcde"),
            # Each account fails once more, much later.
            [*failures(5, names="abcde"), *failures(5, every_s=DAY, names="abcde", start_s=DAY)],
        ],
        [failures(30, names="abcd"), failures(5, every_s=160, names="abcde")],
    ),
    "success_after_failures": (
        [
            [*failures(5), login(60)],
            [*failures(5, names="abcde"), login(10 * MINUTE)],
            [*failures(5), login(60, listener="other")],
            [*failures(5, names="bcdef"), login(60, principal="User:b"), login(61, principal="User:x")],
        ],
        [
            [*failures(4), login(60)],
            [*failures(5), login(60, "10.0.0.2")],
            [*failures(5), login(HOUR)],
            [login(0), *failures(5, start_s=1)],
            [*failures(9), login(100, principal="User:CN=other")],
            [*failures(9), login(100, principal="User:CN=other", listener="mtls")],
            [*failures(1, start_s=0), *failures(5, names="bcdef", start_s=11 * MINUTE), login(12 * MINUTE)],
        ],
    ),
    "other_login_after_failures": (
        [
            [*failures(5), login(60, principal="User:CN=other")],
            [*failures(5, names=("b", "c")), login(60), login(60, principal="User:b"), login(61)],
        ],
        [
            [*failures(5), login(60)],
            [*failures(4), login(60, principal="User:CN=other")],
            [*failures(5), login(60, principal="User:CN=other", listener="mtls")],
            [*failures(5), login(60, "10.0.0.2", principal="User:CN=other")],
            [*failures(5), login(HOUR, principal="User:CN=other")],
        ],
    ),
    "grant_then_read": (
        [
            [grant(0), fetch(60)],
            [grant(0, "*"), fetch(HOUR - 1)],
            [grant(0, "sec", operation="ALL"), fetch(9)],
            [grant(0), *(fetch(n, size=0) for n in range(1000))],
            [grant(0, grantee="User:*"), fetch(60)],
        ],
        [
            [grant(0), fetch(60, size=100)],
            [grant(0), fetch(60, principal="User:c")],
            [grant(0), fetch(2 * HOUR)],
            [grant(0, "other"), fetch(60)],
            [grant(0, operation="WRITE"), fetch(60)],
            [grant(0, permission="DENY"), fetch(60)],
            [fetch(0), grant(1), fetch(60)],
            [grant(0), fetch(60, outcome="denied")],
        ],
    ),
    "self_grant": (
        [[grant(0, grantee="User:a")], [grant(0, "*", grantee="User:a", operation="WRITE"), grant(9)]],
        [[grant(0)], [grant(0, grantee="User:*")], [grant(0, grantee="User:a", permission="DENY")]],
    ),
    "mass_delete": (
        [
            [request(n, "DeleteTopics", 20, topic(f"t{n}")) for n in range(5)],
            [request(0, "DeleteTopics", 20, *(topic(f"t{n}") for n in range(5)))],
            [request(n, "DeleteRecords", 21, topic("t")) for n in range(5)],
        ],
        [
            [request(n * 80, "DeleteTopics", 20, topic(f"t{n}")) for n in range(20)],
            [request(n, "DeleteTopics", 20, topic(f"t{n}", error_code=29), outcome="denied") for n in range(5)],
            [request(n, "DeleteTopics", 20, topic("t"), principal=f"User:{n}") for n in range(5)],
            [
                request(n, "DeleteTopics", 20, topic("t"), {"type": "CLUSTER", "name": "c", "operation": "DELETE"})
                for n in range(4)
            ],
        ],
    ),
    "denied_probing": (
        [[request(n, "Fetch", 1, topic(f"t{n}", granted=False), outcome="denied") for n in range(5)]],
        [
            [request(n, "Fetch", 1, topic("t", granted=False), outcome="denied") for n in range(50)],
            [request(n, "Fetch", 1, topic(f"t{n}", granted=True)) for n in range(5)],
        ],
    ),
    "wildcard_acl": (
        [
            [grant(0, grantee="User:*", operation="WRITE")],
            [grant(0, "*", operation="ALL")],
            [grant(0, grantee="User:*", operation="READ"), grant(9, grantee="User:*", operation="read")],
        ],
        [
            [grant(0, grantee="User:*", operation="DESCRIBE")],
            [grant(0, "*")],
            [grant(0, "*", operation="ALL", permission="DENY")],
            [grant(0, "all*", grantee="User:x*", operation="ALL")],
        ],
    ),
    "grant_used_then_revoked": (
        [
            [grant(0), fetch(60, size=100), revoke(120)],
            [grant(0), grant(1, "other"), fetch(60, size=100), revoke(90, "other"), revoke(HOUR)],
        ],
        [
            [grant(0), revoke(60), fetch(90, size=100)],
            [fetch(0, size=100), grant(60), revoke(90)],
            [grant(0), fetch(60, size=0), revoke(120)],
            [grant(0), fetch(60, "other", size=100), revoke(120)],
            [grant(0), fetch(60, principal="User:c", size=100), revoke(120)],
            [grant(0), fetch(60, size=100), revoke(HOUR + 1)],
            [grant(0), fetch(60, size=100), revoke(90, binding="FILTER")],
        ],
    ),
    "scram_user_created_then_used": (
        [[scram(0), login(60, principal="User:eve")]],
        [
            [login(0, principal="User:eve"), scram(60)],
            [scram(0), login(60, principal="User:eva")],
            [scram(0), login(601, principal="User:eve")],
            [scram(0, operation="DELETE"), login(60, principal="User:eve")],
        ],
    ),
    "token_for_another": (
        [[token(0, "User:b")]],
        [[token(0, "User:a")], [token(0, "User:b", outcome="denied")]],
    ),
    "transactions_fenced": (
        [[fenced(n, ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")[n % 2]) for n in range(3)]],
        [[fenced(n) for n in range(2)], [fenced(n * 400) for n in range(9)], [fenced(n, "NONE") for n in range(9)]],
    ),
    "retention_shortened": (
        [
            [configure(0, "retention.ms", "1000", "604800000")],
            [configure(0, "retention.ms", "1000", None)],
            [configure(0, "retention.bytes", "9", "-1")],
            [configure(0, "log.retention.ms", "86400000", "-1")],
        ],
        [
            [configure(0, "retention.ms", "604800000", "1000")],
            [configure(0, "retention.ms", "-1", "604800000")],
            [configure(0, "retention.ms", "-1", None)],
            [configure(0, "retention.ms", "86400000", None)],
            [configure(0, "segment.ms", "1", "1000")],
            [configure(0, "retention.ms", "1000", "604800000", outcome="denied")],
        ],
    ),
    "durability_weakened": (
        [
            [configure(0, "unclean.leader.election.enable", "true", "false")],
            [configure(0, "min.insync.replicas", "1", "2")],
            [request(0, "ElectLeaders", 43, elected("UNCLEAN"))],
        ],
        [
            [configure(0, "unclean.leader.election.enable", "false", "true")],
            [configure(0, "min.insync.replicas", "2", "1")],
            [configure(0, "min.insync.replicas", "10", "9")],
            [request(0, "ElectLeaders", 43, elected("PREFERRED"))],
        ],
    ),
    "quota_lifted": (
        [[quota(0, "2e6", "1000000.0")], [quota(0, None, "1000000.0")]],
        [[quota(0, "1000.0", "1000000.0")], [quota(0, "1000.0", None)], [quota(0, "1000.0", "1000.0")]],
    ),
    "offsets_reset": (
        [
            [commit(0, -1)],
            [request(0, "OffsetDelete", 47, {"type": "GROUP", "name": "g"}, topic("t"))],
        ],
        [[commit(0, 7)], [commit(0, 1)], [request(0, "OffsetFetch", 9, {"type": "GROUP", "name": "g"})]],
    ),
    "partitions_moved": (
        [[request(0, "AlterPartitionReassignments", 45, topic("t"))]],
        [
            [request(0, "ListPartitionReassignments", 46, topic("t"))],
            [request(0, "AlterPartitionReassignments", 45, topic("t", error_code=29), outcome="denied")],
        ],
    ),
    "anonymous_change": (
        [
            [request(0, "CreateTopics", 19, topic("t"), principal="User:ANONYMOUS")],
            [request(0, "DeleteRecords", 21, topic("t"), principal="User:ANONYMOUS")],
        ],
        [
            [request(0, "CreateTopics", 19, topic("t"))],
            [request(0, "Produce", 0, topic("t"), principal="User:ANONYMOUS")],
            [request(0, "CreateTopics", 19, topic("t"), principal="User:ANONYMOUS", outcome="denied")],
        ],
    ),
    "plaintext_password": (
        [[{**login(0), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}]],
        [
            [{**login(0), "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}],
            [{**login(0), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}],
            [{**login(0, "127.0.0.9"), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}],
            [{**login(0, "::1"), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}],
        ],
    ),
    "internal_topic_read": (
        [[fetch(0, "__consumer_offsets"), fetch(9, "__consumer_offsets")]],
        [[fetch(0, "_schemas")], [fetch(0, "a__b")], [fetch(0, "__consumer_offsets", size=0)]],
    ),
    "first_admin_use": (
        [[*SOME, request(200, "CreateTopics", 19, topic("t"), principal="User:c")]],
        [
            [*SOME, request(200, "CreateTopics", 19, topic("t"), principal="User:d")],
            [
                request(0, "CreateTopics", 19, topic("t"), principal="User:c"),
                *SOME,
                request(200, "CreateTopics", 19, topic("t"), principal="User:c"),
            ],
        ],
    ),
    "unusual_hours": (
        [[*hours(4, 9), request(3 * DAY + 22 * HOUR, "Produce", 0, topic("t"))]],
        [
            [*hours(4, 9), request(3 * DAY + 11 * HOUR, "Produce", 0, topic("t"))],
            [*hours(2, 9), request(DAY + 22 * HOUR, "Produce", 0, topic("t"))],
            [*hours(4, 23), request(4 * DAY + HOUR, "Produce", 0, topic("t"))],
        ],
    ),
    "quota_abuse": (
        [[request(0, "Produce", 0, repeat_count=100, throttle_time_ms=50.0, outcome="throttled")]],
        [
            [request(0, "Produce", 0, repeat_count=99, throttle_time_ms=50.0)],
            [
                request(0, "Produce", 0, repeat_count=100, throttle_time_ms=50.0),
                request(0, "Produce", 0, repeat_count=101),
            ],
        ],
    ),
    "deprecated_client": (
        [
            [request(0, "Produce", 0, client_software_name=name, client_software_version=version)]
            for name, version in (
                ("librdkafka", "1.8.1"),
                ("librdkafka", "0.11"),
                ("librdkafka", "v1.6.1-5"),
                ("librdkafka", "1"),
                ("sarama", "1.9.3"),
                ("apache-kafka-java", "2.0.1"),
            )
        ],
        [
            [request(0, "Produce", 0, client_software_name=name, client_software_version=version)]
            for name, version in (
                ("librdkafka", "1.8.2"),
                ("librdkafka", "2.0"),
                ("librdkafka", "v2.8.0"),
                ("librdkafka", "unknown"),
                ("apache-kafka-java", "2.1"),
                ("apache-kafka-java", "2.1.0"),
                ("other", "0.1"),
            )
        ],
    ),
    "missing_events": (
        [[event(0, "audit_gap", "dropped", "error", gap_count=7)]],
        [[event(0, "admin", "server_started")]],
    ),
    "interrupted_change": (
        [[request(0, "CreateTopics", 19, topic("t"), action="interrupted", outcome="unknown", intent_id="i")]],
        [
            [
                request(0, "CreateTopics", 19, topic("t"), intent_id="i"),
                request(1, "CreateTopics", 19, topic("t"), action="interrupted", outcome="unknown", intent_id="i"),
            ]
        ],
    ),
}


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    made = DuckDbViews(tmp_path_factory.mktemp("empty"), Period())
    yield made
    made.close()


@pytest.fixture
def findings(views, tmp_path):
    """Return a function that writes events as a segment, like a server, and runs a detection."""

    def find(name, events):
        lines = [{**one, "seq": seq, "event_id": f"n/{BOOT}/{seq}"} for seq, one in enumerate(events)]
        path = tmp_path / (SegmentName(BOOT, 0).stem + OPEN_SUFFIX)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
        views.forget(NO_LIMIT_US)
        views.add([str(path)])
        return DETECTIONS[name].run(views)

    return find


def cases(which):
    return [
        pytest.param(name, events, id=f"{name}-{n}") for name in CASES for n, events in enumerate(CASES[name][which])
    ]


@pytest.mark.parametrize(("name", "events"), cases(0))
def test_rule_fires_on_its_attack(findings, name, events):
    found = findings(name, events)
    assert len(found) == 1
    finding = found[0]
    assert finding.events >= 1
    assert finding.first_us <= finding.last_us
    assert {finding.first_event, finding.last_event} <= {f"n/{BOOT}/{seq}" for seq in range(len(events))}
    assert finding.detail
    assert all(value is not None for value in finding)


@pytest.mark.parametrize(("name", "events"), cases(1))
def test_a_rule_does_not_fire_on_similar_normal_events(findings, name, events):
    assert findings(name, events) == []


def test_a_login_of_another_account_does_not_count_as_a_guessed_password(findings):
    """An mTLS login of a service comes from the same address as wrong passwords of another account."""
    events = [*failures(9), login(100, principal="User:CN=service"), login(101, principal="User:CN=x", listener="mtls")]
    assert findings("success_after_failures", events) == []
    (found,) = findings("other_login_after_failures", events)
    assert (found.principal, found.object, found.detail) == (
        "User:CN=service",
        "front",
        "after 9 failed logins, none of this account",
    )
    assert DETECTIONS["other_login_after_failures"].severity == "medium"


def test_each_detection_has_cases_and_a_severity():
    assert CASES.keys() == DETECTIONS.keys()
    assert {detection.severity for detection in DETECTIONS.values()} <= set(SEVERITIES)


def test_a_finding_names_account_address_and_topic(findings):
    (finding,) = findings("grant_then_read", [grant(0), fetch(60)])
    assert finding[:4] == ("User:b", "10.0.0.1", "secret", 1)
    assert finding.detail == f"granted by User:a, then read {2 << 20} bytes"
    assert (finding.first_event, finding.last_event) == (f"n/{BOOT}/0", f"n/{BOOT}/1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT 1", "needs a line `-- title"),
        ("-- title: a\n-- doc: b\n-- severity: bad\n", "severity is one of"),
        ("-- title: a\n-- doc: b\n-- severity: low\n-- key: who\n", "key names columns of a finding, not who"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, problem):
    path = tmp_path / "x.sql"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_detection(path)


def test_the_page_lists_all_detections():
    page = (Path(__file__).parents[3] / "docs" / "audit" / "questions.md").read_text()
    rows = [f"| `{one.name}` | {one.severity} | {one.doc} |" for one in own_detections()]
    assert "\n".join(rows) in page
