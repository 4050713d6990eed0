"""Rules that together use every word of Sigma that klamm compiles, and the events that each rule must match."""

import json

from tests.unit.audit.test_detections import BOOT, CASES, changed, event, fetch, login, named, request, topic

LOG_SOURCE = "logsource: {product: kafka, service: audit}\n"

EVENTS = [
    login(0, "10.1.2.3", "User:Ann"),
    login(60, "10.1.9.9", "User:bob", failed=True),
    request(120, "Metadata", 3, principal=None, client_id="50%_off!", client_software_name="O'Neil\\x`y"),
    fetch(180, "orders", "User:Ann", size=700),
    fetch(240, "orders", "User:bob", size=700),
    fetch(300, "payroll", "User:bob", size=9, client_id="User:bob-1"),
    named(360, "IncrementalAlterConfigs", 44, "TOPIC", "orders", [changed("config.retention.ms", "10", "90")]),
    named(420, "IncrementalAlterConfigs", 44, "TOPIC", "orders", [changed("config.retention.ms", "90", "-1")]),
    request(480, "Fetch", 1, topic("a", granted=True), topic("b", granted=False), repeat_count=7, outcome="denied"),
    event(540, "audit_gap", "dropped", "error", gap_count=7),
    named(600, "OffsetCommit", 8, "GROUP", "g", [("generation", "-1"), ("validate_only", "true")]),
]

CONDITIONS = {
    "{action: SUCCESS}": [0],
    "{action|cased: SUCCESS}": [],
    "{action|cased: success, principal: user:ann}": [0],
    "{client_address|startswith: 10.1.}": [0, 1],
    "{principal|endswith: ANN}": [0, 3],
    "{principal|contains: ':a', api_name: null}": [0, 1],
    "{principal|contains|cased: ':A', kind: request}": [3],
    "{principal: 'User:?nn', kind: request}": [3],
    "{client_id: '50%_off!'}": [2],
    "{client_id: '50*off!'}": [2],
    "{client_id: '5__*'}": [],
    "{client_software_name|cased: O'Neil\\x`y}": [2],
    '{client_software_name|re: "^O\'N.*[\\\\\\\\]x"}': [2],
    "{client_software_name|re|i: '^o.neil'}": [2],
    "{client_address|cidr: 10.1.0.0/16, kind: authentication}": [0, 1],
    "{client_address|cidr: 10.1.2.0/24}": [0],
    "{principal: null, kind: request}": [2],
    "{gap_count|exists: true}": [9],
    "{api_name|exists: false}": [0, 1, 9],
    "{api_key: 3}": [2],
    "{api_key: '3'}": [2],
    "{repeat_count|gt: 6}": [8],
    "{gap_count|lt: 7}": [],
    "{gap_count|lte: 7, gap_count|gte: 7}": [9],
    "{resource.bytes|gte: 700}": [3, 4],
    "{resource.granted: false}": [8],
    "{resource.name: [payroll, b]}": [5, 8],
    "{principal|fieldref: principal, resource.name: payroll}": [5],
    "{client_id|fieldref|startswith: principal}": [5],
    "{attribute.config.retention.ms: '10'}": [6],
    "{attribute.config.retention.ms: 10}": [6],
    "{attribute.config.retention.ms.old: '90'}": [6],
    "{attribute.config.retention.ms.new|lt: 50}": [6],
    "{attribute.config.retention.ms.operation: SET}": [6, 7],
    "{attribute.config.retention.ms.change: lowered}": [6, 7],
    "{attribute.config.retention.ms.change: raised}": [],
    "{attribute.generation: -1}": [10],
    "{attribute.validate_only: true}": [10],
    "{resource.principal: 'User:g'}": [10],
}
"""The matching events of each rule with a selection."""

CONJUNCTIONS = {
    "request and not read": [2, 6, 7, 8, 10],
    "request and not (read or change)": [2, 8, 10],
    "1 of r*": [*range(2, 9), 10],
    "all of r* and not 1 of c*": [3, 4, 5],
    "request and not client": [3, 4, 5, 6, 7, 8, 10],
}
_OTHERS = """\
  request: {kind: request}
  read: {resource.bytes|gt: 0}
  change: {attribute.config.retention.ms|exists: true}
  client: {client_id|startswith: '5', principal: null}
"""

CORRELATIONS = {
    "{type: event_count, rules: base, group-by: principal, timespan: 2m, condition: {gte: 2}}": {"User:bob": 2},
    "{type: event_count, rules: base, group-by: principal, timespan: 59s, condition: {gte: 2}}": {},
    "{type: event_count, rules: base, timespan: 1h, condition: {gt: 2}}": {"": 3},
    "{type: event_count, rules: [base, other], timespan: 1h, condition: {eq: 4}}": {"": 4},
    "{type: value_count, rules: base, group-by: principal, timespan: 1h, condition: {field: resource.name, gte: 2}}": {
        "User:bob": 2
    },
    "{type: value_count, rules: base, timespan: 1m, condition: {field: principal, gte: 2}}": {"": 2},
    "{type: value_count, rules: base, timespan: 59s, condition: {field: principal, gte: 2}}": {},
    "{type: value_sum, rules: base, group-by: api_name, timespan: 1h, condition: {field: resource.bytes, gt: 9e2}}": {
        "": 3
    },
    "{type: temporal, rules: [other, base], group-by: principal, timespan: 3m}": {"User:Ann": 1},
    "{type: temporal, rules: [other, base], group-by: principal, timespan: 179s}": {},
    "{type: temporal_ordered, rules: [other, base], group-by: principal, timespan: 3m}": {"User:Ann": 1},
    "{type: temporal_ordered, rules: [base, other], group-by: principal, timespan: 3m}": {},
    "{type: temporal_ordered, rules: [base, twice], group-by: principal, timespan: 3m}": {"User:bob": 2},
}
"""The accounts in the findings of each rule with a correlation, with their numbers of events.

`base` reads, `other` logs in.
"""
_BASES = (
    f"title: B\nname: base\n{LOG_SOURCE}detection: {{s: {{resource.bytes|gt: 0}}, condition: s}}\n---\n"
    f"title: O\nname: other\n{LOG_SOURCE}detection: {{s: {{action: success}}, condition: s}}\n---\n"
    "title: W\nname: twice\n"
    "correlation: {type: event_count, rules: base, group-by: principal, timespan: 2m, condition: {gte: 2}}\n---\n"
)


def write_rules(folder):
    """Write all rules. Return for each rule what it must find: minutes of single events, or accounts with numbers."""
    wanted, text = {}, _BASES
    selections = [(f"  s: {selection}\n  condition: s\n", found) for selection, found in CONDITIONS.items()]
    conjunctions = [(f"{_OTHERS}  condition: {condition}\n", found) for condition, found in CONJUNCTIONS.items()]
    for number, (detection, found) in enumerate([*selections, *conjunctions]):
        text += f"title: R\nname: r{number}\n{LOG_SOURCE}detection:\n{detection}klamm: {{object: event_id}}\n---\n"
        wanted[f"r{number}"] = found
    for number, (correlation, found) in enumerate(CORRELATIONS.items()):
        text += f"title: C\nname: c{number}\ncorrelation: {correlation}\n---\n"
        wanted[f"c{number}"] = found
    (folder / "all.yml").write_text(text)
    return wanted


def numbered(events):
    """Return the events with ids, which are their numbers."""
    return [{**one, "seq": seq, "event_id": f"n/{BOOT}/{seq}"} for seq, one in enumerate(events)]


def one_attack():
    """Return events for each detection, with its own accounts and addresses."""
    events = []
    for number, (name, (fires, _)) in enumerate(CASES.items()):
        text = json.dumps(fires[0]).replace('"10.0.0.', f'"10.9.{number}.').replace('"User:a"', f'"User:a-{name}"')
        events += json.loads(text)
    events.sort(key=lambda one: one["time_us"])
    # No two events have the same time, because either one could be the first.
    return numbered({**one, "time_us": one["time_us"] + number} for number, one in enumerate(events))


def found_by(name, findings):
    """Return the findings of a rule, in the form of `write_rules`."""
    if name.startswith("c"):
        return {finding.principal: finding.events for finding in findings}
    return sorted(int(finding.object.rsplit("/", 1)[1]) for finding in findings)
