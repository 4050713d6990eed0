// The views of what the cluster has: topics, groups, transactions, quotas, users and ACLs.

import { act, get } from "./console.js";
import { bytes, choice, el, field, form, link, number, table } from "./elements.js";

const ENTITIES = { user: ["user"], "client id": ["client_id"], "user and client id": ["user", "client_id"], address: ["ip"] };
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
  "connection_creation_rate"];

export async function topics() {
  const create = ({ name, partitions }) =>
    act("create_topic", { name, partitions: Number(partitions) }, `${name} is created`);
  return [
    el("h1", {}, "Topics"),
    form(create, field("New topic", "name", { required: true, maxlength: 249 }),
      field("Partitions", "partitions", { type: "number", value: 1, min: 1, max: 10000 }), el("button", {}, "Create")),
    table("Topics", [
      ["name", (row) => link("topics", row.name)],
      ["partitions", (row) => number(row.partitions), "number"],
      ["", (row) => (row.internal ? "internal" : "")],
    ], await get("topics")),
  ];
}

export async function topic(name) {
  const found = await get("topic", { name });
  const records = el("div", {});
  const partition = el("select", { name: "partition" },
    found.partitions.map((each) => el("option", { value: each.partition }, each.partition)));
  const from = el("input", { name: "offset", placeholder: "the last 50", inputmode: "numeric", pattern: "[0-9]*", autocomplete: "off" });
  const at = el("input", { name: "time", type: "datetime-local", step: 1 });
  const key = el("input", { name: "key", autocomplete: "off" });
  const read = async (event) => {
    if (event) event.preventDefault();
    const query = { name, partition: partition.value };
    if (key.value) query.key = key.value;
    if (from.value) query.offset = from.value;
    else if (at.value) query.timestamp_ms = new Date(at.value).getTime();
    try {
      const page = await get("records", query);
      records.replaceChildren(recordTable(page), el("p", {}, el("button", {
        disabled: page.next_offset >= page.end_offset || !(page.records.length || key.value),
        onclick: () => { from.value = page.next_offset; read(); } }, "Next")));
    } catch (error) {
      records.replaceChildren(el("p", { class: "error" }, error.message));
    }
  };
  const view = [
    el("h1", {}, name),
    table("Partitions", [
      ["partition", (row) => row.partition, "number"],
      ["leader", (row) => row.leader, "number"],
      ["in sync", (row) => row.isr.join(", ")],
      ["first offset", (row) => number(row.start_offset), "number"],
      ["end offset", (row) => number(row.end_offset), "number"],
    ], found.partitions),
    el("h2", {}, "Records"),
    el("form", { onsubmit: read }, el("label", {}, "Partition", partition), el("label", {}, "From offset", from),
      el("label", {}, "or from time", at), el("label", {}, "Key", key), el("button", { class: "main" }, "Read")),
    records,
    el("h2", {}, "Configs"),
    found.configs ? table("Configs", [
      ["name", (row) => row.name],
      ["value", (row) => el("code", {}, row.value ?? "(hidden)")],
      ["from", (row) => row.source],
      ["", (row) => [el("button", { "aria-label": `Change ${row.name}`, onclick: () => changeConfig(name, row) }, "Change"),
        row.source === "topic" ? el("button", { "aria-label": `Reset ${row.name}`, onclick: () =>
          confirm(`Return ${row.name} to its default?`) && act("alter_config", { name, config: row.name }, `${row.name} has its default`) }, "Reset") : null]],
    ], found.configs) : el("p", { class: "dim" }, "You may not see the configs of this topic."),
    el("p", {}, el("button", { class: "bad", onclick: () => confirm(`Delete the topic ${name} and all its records?`) &&
      act("delete_topic", { name }, `${name} is deleted`, "#topics") }, "Delete this topic")),
  ];
  await read();
  return view;
}

function changeConfig(name, row) {
  const value = prompt(`${row.name} of ${name}`, row.value ?? "");
  if (value != null) act("alter_config", { name, config: row.name, value }, `${row.name} is ${value}`);
}

function content(value) {
  if (value == null) return el("span", { class: "dim" }, "null");
  const notes = [];
  if (value.schema_id != null) notes.push(`schema ${value.schema_id}`);
  if (value.as !== "text") notes.push(value.as);
  if (value.note) notes.push(value.note);
  if (value.cut) notes.push(`the first part of ${bytes(value.bytes)}`);
  return [el("pre", {}, value.text), notes.length ? el("div", { class: "dim" }, notes.join(", ")) : null];
}

function recordTable(page) {
  const until = page.searched ? `${number(page.next_offset)} of ${number(page.end_offset)}` : number(page.end_offset);
  return table(`Records up to offset ${until}`, [
    ["offset", (row) => row.offset, "number"],
    ["time", (row) => (row.timestamp_ms < 0 || row.timestamp_ms > 8.64e15 ? row.timestamp_ms : new Date(row.timestamp_ms).toISOString()), "time"],
    ["key", (row) => content(row.key)],
    ["value", (row) => content(row.value)],
    ["headers", (row) => row.headers.map((each) => el("div", {}, `${each.name}: `, each.value ? each.value.text : "null"))],
  ], page.records);
}

export function groups(rows) {
  return [
    el("h1", {}, "Groups"),
    table("Groups", [
      ["name", (row) => link("groups", row.name)],
      ["state", (row) => row.state],
      ["type", (row) => row.type],
      ["protocol", (row) => row.protocol],
      ["lag", (row) => number(row.lag), "number"],
    ], rows),
  ];
}

export async function group(name) {
  const found = await get("group", { name });
  const total = found.offsets.reduce((sum, row) => sum + (row.lag || 0), 0);
  return [
    el("h1", {}, name || "(empty name)"),
    el("p", {}, `${found.state}, ${found.members.length} members, lag ${number(total)}`),
    table("Members", [
      ["client", (row) => row.client_id],
      ["member", (row) => row.member_id],
      ["instance", (row) => row.instance_id],
      ["partitions", (row) => row.partitions.join(", ")],
    ], found.members),
    el("h2", {}, "Offsets"),
    table("Offsets", [
      ["topic", (row) => link("topics", row.topic)],
      ["partition", (row) => row.partition, "number"],
      ["committed", (row) => number(row.committed), "number"],
      ["end", (row) => number(row.end_offset), "number"],
      ["lag", (row) => number(row.lag), "number"],
      ["", (row) => el("button", { class: "bad", "aria-label": `Delete the offset of ${row.topic}-${row.partition}`,
        onclick: () => confirm(`Delete the offset of ${row.topic}-${row.partition}?`) && act("delete_offsets",
          { name, topic: row.topic, partition: row.partition }, `the offset of ${row.topic}-${row.partition} is deleted`) }, "Delete")],
    ], found.offsets),
    form((values) => resetOffsets(name, values),
      field("Reset the offsets of the topic", "topic", { required: true, maxlength: 249, value: found.offsets[0]?.topic }),
      field("Partition", "partition", { type: "number", min: 0, placeholder: "all" }),
      choice("To", "to", [["the first record", "earliest"], ["the end", "latest"], ["the offset", "offset"], ["the time", "time"]]),
      field("Offset", "offset", { type: "number", min: 0 }), field("Time", "time", { type: "datetime-local", step: 1 }),
      el("button", {}, "Reset")),
    el("p", {}, el("button", { class: "bad", onclick: () => confirm(`Delete the group ${name} and its offsets?`) &&
      act("delete_group", { name }, `${name} is deleted`, "#groups") }, "Delete this group")),
  ];
}

function resetOffsets(name, { topic, partition, to, offset, time }) {
  const asked = { name, topic, to };
  if (partition) asked.partition = Number(partition);
  if (to === "offset" && offset) asked.offset = Number(offset);
  if (to === "time" && time) asked.timestamp_ms = new Date(time).getTime();
  if (confirm(`Commit other offsets for ${name} on ${partition ? `${topic}-${partition}` : `all of ${topic}`}?`)) {
    act("reset_offsets", asked, `the offsets of ${topic} are reset`);
  }
}

export function transactions(rows) {
  return [
    el("h1", {}, "Transactions"),
    table("Transactions", [
      ["transactional id", (row) => row.transactional_id],
      ["producer id", (row) => row.producer_id, "number"],
      ["state", (row) => row.state],
    ], rows),
  ];
}

export async function quotas() {
  // Not every user may see connections.
  const seen = await get("connections").catch(() => null);
  return [
    el("h1", {}, "Quotas"),
    seen && table("Throttled now", [
      ["client", (row) => row.client_id || row.software],
      ["principal", (row) => row.principal],
      ["from", (row) => row.client_address],
      ["listener", (row) => row.listener],
    ], seen.connections.filter((row) => row.waits_for === "throttle")),
    form(setQuota, choice("Of", "kind", Object.keys(ENTITIES)), field("User", "user", { placeholder: "the default" }),
      field("Client id", "client_id", { placeholder: "the default" }), field("Address", "ip", { placeholder: "the default" }),
      choice("Quota", "key", QUOTAS), field("Value", "value", { type: "number", min: 0, step: "any", required: true }),
      el("button", {}, "Set")),
    table("Quotas", [
      ["of", (row) => row.entity],
      ["quota", (row) => row.key],
      ["value", (row) => row.value.toLocaleString("en"), "number"],
      ["", (row) => el("button", { class: "bad", "aria-label": `Remove ${row.key} of ${row.entity}`, onclick: () =>
        confirm(`Remove ${row.key} of ${row.entity}?`) &&
        act("alter_quota", { ...row.of, key: row.key }, `${row.key} of ${row.entity} is removed`) }, "Remove")],
    ], (await get("quotas")).flatMap((row) => Object.entries(row.quotas).map(([key, value]) => ({ ...row, key, value })))),
  ];
}

function setQuota({ kind, key, value, ...names }) {
  const entity = Object.fromEntries(ENTITIES[kind].map((part) => [part, names[part] || null]));
  const what = ENTITIES[kind].map((part) => `${part} ${names[part] || "(default)"}`).join(", ");
  if (confirm(`Set ${key} of ${what} to ${value}?`)) {
    act("alter_quota", { ...entity, key, value: Number(value) }, `${key} of ${what} is ${value}`);
  }
}

export async function users() {
  const set = ({ user, mechanism, password }) =>
    confirm(`Set the password of ${user}?`) && act("set_password", { user, mechanism, password }, `${user} has the password`);
  return [
    el("h1", {}, "Users"),
    form(set, field("User", "user", { required: true, maxlength: 4096 }),
      choice("Mechanism", "mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256"]),
      field("Password", "password", { type: "password", required: true, autocomplete: "new-password" }),
      el("button", {}, "Add, or change the password")),
    table("SCRAM credentials", [
      ["user", (row) => row.user],
      ["mechanism", (row) => row.mechanism],
      ["iterations", (row) => number(row.iterations), "number"],
      ["", (row) => el("button", { class: "bad", "aria-label": `Delete ${row.mechanism} of ${row.user}`, onclick: () =>
        confirm(`Delete the credential ${row.mechanism} of ${row.user}?`) && act("delete_credential",
          { user: row.user, mechanism: row.mechanism }, `${row.mechanism} of ${row.user} is deleted`) }, "Delete")],
    ], await get("users")),
  ];
}

const resource = (row) => `${row.resource} ${row.name}${row.pattern === "PREFIXED" ? "*" : ""}`;

export async function acls() {
  const found = await get("acls");
  const body = el("div", {});
  const filter = el("input", { name: "filter", type: "search", autocomplete: "off" });
  const draw = () => {
    const wanted = filter.value.toLowerCase();
    const rows = found.filter((row) => Object.values(row).join(" ").toLowerCase().includes(wanted));
    body.replaceChildren(table("ACLs", [
      ["principal", (row) => row.principal],
      ["may", (row) => `${row.permission} ${row.operation}`],
      ["resource", resource],
      ["from host", (row) => row.host],
      ["", (row) => el("button", { class: "bad", "aria-label": `Delete the ACL of ${row.principal} on ${resource(row)}`, onclick: () =>
        confirm(`Delete ${row.permission} ${row.operation} of ${row.principal} on ${resource(row)}?`) &&
        act("delete_acl", row, "the ACL is deleted") }, "Delete")],
    ], rows));
  };
  filter.addEventListener("input", draw);
  draw();
  const create = (rule) => act("create_acl", rule, "the ACL is created");
  return [el("h1", {}, "ACLs"), form(create,
    choice("New ACL", "permission", ["ALLOW", "DENY"]), field("Principal", "principal", { value: "User:", required: true }),
    choice("Operation", "operation", ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
      "CLUSTER_ACTION", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT", "ALL"]),
    choice("Resource", "resource", ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]),
    field("Name", "name", { required: true }), choice("Pattern", "pattern", ["LITERAL", "PREFIXED"]),
    field("From host", "host", { value: "*", required: true }), el("button", {}, "Create")),
  form(() => {}, el("label", {}, "Filter by principal, resource or operation", filter)), body];
}
