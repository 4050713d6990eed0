// The console's page. All text from the server is set as text, never as HTML.
"use strict";

const main = document.getElementById("main");
const status = document.getElementById("status");
const LOOK_MS = 2000;
const DAY_S = 86400;
const VIEWS = [
  ["overview", "Overview"],
  ["connections", "Connections"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["transactions", "Transactions"],
  ["quotas", "Quotas"],
  ["acls", "ACLs"],
  ["access", "Who may"],
  ["audit", "Audit"],
];
const TEST_KIT = ["test_kit", "Test kit"];
const KINDS = ["error", "error_after", "delay", "slow", "disconnect", "disconnect_after", "truncate", "corrupt",
  "stale_metadata", "coordinator_moved", "throttle", "partition_error", "reorder"];
let session = {};
let timer = 0;

// ---- elements

function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  for (const child of children.flat()) {
    if (child != null) made.append(child instanceof Node ? child : String(child));
  }
  return made;
}

function table(caption, columns, rows) {
  const head = columns.map(([title, , kind]) => el("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) => el("tr", {}, columns.map(([, cell, kind]) => el("td", { class: kind }, cell(row)))));
  if (!rows.length) body.push(el("tr", {}, el("td", { colspan: columns.length, class: "dim" }, "none")));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, `${caption} (${rows.length})`), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

const number = (value) => (value == null ? "" : Math.round(value).toLocaleString("en"));
const bytes = (value) => {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024 || unit === "GiB") return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1024;
  }
};
const link = (view, name) => el("a", { href: `#${view}/${encodeURIComponent(name)}` }, name || "(empty)");
const say = (text) => { status.textContent = text; };

// ---- requests

async function ask(path, body) {
  const options = { credentials: "same-origin", headers: { "X-Klamm-Csrf": sessionStorage.getItem("csrf") || "" } };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(`api/${path}`, options);
  const content = await answer.json();
  if (answer.status === 401 && session.user) {
    session = {};
    await start();
  }
  if (!answer.ok) throw new Error(content.error);
  return content;
}

const get = (path, query = {}) => ask(`${path}?${new URLSearchParams(query)}`);

// Does an action, and then shows `next` or the same view again.
async function act(path, body, done, next) {
  try {
    await ask(path, body);
  } catch (error) {
    say(error.message);
    return;
  }
  say(done);
  if (next && location.hash !== next) {
    said = done;
    location.hash = next;
  } else {
    await show();
  }
}

let said = "";

// ---- views

function gauge(title, value, text, share, note) {
  const heat = share == null ? "" : share > 0.8 ? "hot" : share > 0.5 ? "warm" : "";
  return el("li", { class: heat }, el("b", {}, title), el("strong", {}, text),
    share == null ? null : el("meter", { min: 0, max: 1, value: Math.min(1, share), "aria-label": title }),
    el("div", { class: "dim" }, note));
}

let before = null;

function stages(now) {
  const s = now.stages;
  const old = before ? before.stages : s;
  const seconds = before ? (now.time_ns - before.time_ns) / 1e9 : 0;
  before = now;
  const rate = (name) => (seconds ? Math.max(0, (s[name] - old[name]) / seconds) : 0);
  const processors = rate("processor_busy_s") / Math.max(1, s.processors);
  const handlers = rate("handler_busy_s") / Math.max(1, s.handlers);
  // The seconds of workers are added up.
  const blocked = rate("acceptor_blocked_s") / Math.max(1, s.workers_ready || 1);
  const percent = (share) => `${Math.round(share * 100)} %`;
  return el("ol", { class: "stages", "aria-label": "Stages of a request" },
    gauge("Accept", s.accept_queue, number(s.accept_queue), s.accept_queue / Math.max(1, s.accept_queue_limit),
      `of ${number(s.accept_queue_limit)} new connections wait; blocked ${percent(blocked)}`),
    gauge("Set-up", s.connections_in_setup, number(s.connections_in_setup), null,
      `handshakes; ${rate("failed_logins").toFixed(1)} failed logins/s`),
    gauge("Processors", processors, percent(processors), processors,
      `${s.processors} threads, ${number(s.connections)} connections; longest turn ${number(s.processor_turn_age_ms)} ms`),
    gauge("Memory", s.pool_waiting, number(s.pool_waiting), null,
      `requests wait for memory, the oldest for ${number(s.pool_oldest_ms)} ms; ${bytes(s.pool_used_bytes)} are in use`),
    gauge("Queue", s.queue, number(s.queue), s.queue / Math.max(1, s.queue_capacity),
      `of ${number(s.queue_capacity)} requests; the oldest for ${number(s.queue_oldest_ms)} ms`),
    gauge("Handlers", handlers, percent(handlers), handlers, `${s.handlers} threads`),
    gauge("Disk", rate("flush"), percent(rate("flush")), Math.min(1, rate("flush")), "of the time in syncs"),
    gauge("Answers", s.answers_waiting, number(s.answers_waiting), null,
      `wait; ${bytes(rate("received_bytes"))}/s in, ${bytes(rate("sent_bytes"))}/s out`));
}

async function overview() {
  const now = await get("server");
  const nodes = now.cluster.nodes.map((node) => `${node.id} at ${node.host}:${node.port}`).join(", ");
  return [
    el("h1", {}, "Overview"),
    stages(now),
    now.stages.workers ? el("p", { class: now.stages.workers_ready < now.stages.workers ? "error" : "" },
      `${now.stages.workers_ready} of ${now.stages.workers} workers serve; ${now.stages.workers_restarted} have been restarted`) : null,
    now.cluster.unanswered
      ? el("p", { class: "error" }, `The console's listener does not answer: ${now.cluster.unanswered}. Only this page and the connections need no answer.`)
      : el("p", { class: "dim" }, `Cluster ${now.cluster.cluster_id}, nodes ${nodes}`),
    table("Listeners", [
      ["name", (row) => row.name],
      ["listens on", (row) => row.bound],
      ["advertised", (row) => row.advertised],
      ["security", (row) => row.security_protocol],
      ["handler set", (row) => row.api_set],
      ["parts", (row) => row.parts.map((each) => el("div", {}, each))],
    ], now.listeners),
    now.certificates.length ? table("Certificates", [
      ["listener", (row) => row.listener],
      ["of", (row) => row.server_name],
      ["ends in", (row) => el("span", { class: row.seconds < 30 * DAY_S ? "error" : "" },
        row.seconds > 0 ? `${(row.seconds / DAY_S).toFixed(1)} days` : "has ended"), "number"],
    ], now.certificates) : null,
    now.gateways.length ? table("Gateways", [
      ["of", (row) => row.of],
      ["number", (row) => row.name],
      ["value", (row) => number(row.value), "number"],
    ], now.gateways) : null,
  ];
}

const ORDERS = [
  ["id", "id"],
  ["time of processors", "processor_ms"],
  ["time of handlers", "handler_ms"],
  ["age of the request", "in_flight_ms"],
  ["bytes held", "held_bytes"],
  ["received", "received_bytes"],
  ["sent", "sent_bytes"],
];
// The choices stay while the view is drawn again.
const chosen = { filter: "", order: "id" };

async function connections() {
  const found = await get("connections");
  const body = el("div", {});
  const milliseconds = (value) => `${number(value)} ms`;
  const draw = () => {
    const wanted = chosen.filter.toLowerCase();
    const rows = found.connections.filter((row) => Object.values(row).join(" ").toLowerCase().includes(wanted));
    if (chosen.order === "id") rows.sort((one, other) => one.id.localeCompare(other.id));
    else rows.sort((one, other) => other[chosen.order] - one[chosen.order]);
    body.replaceChildren(table("Open connections", [
      ["client", (row) => row.client_id || row.software],
      ["principal", (row) => row.principal],
      ["software", (row) => row.software],
      ["from", (row) => row.client_address],
      ["listener", (row) => row.listener],
      ["processor", (row) => (row.worker ? `${row.worker}/${row.processor}` : row.processor)],
      ["state", (row) => (row.mute_state === "NOT_MUTED" ? row.state : `${row.state}, ${row.mute_state}`)],
      ["waits for", (row) => row.waits_for],
      ["request", (row) => row.api && `${row.api}, ${milliseconds(row.in_flight_ms)}`],
      ["in flight", (row) => number(row.in_flight), "number"],
      ["held", (row) => bytes(row.held_bytes), "number"],
      ["time of processors", (row) => milliseconds(row.processor_ms), "number"],
      ["of handlers", (row) => milliseconds(row.handler_ms), "number"],
      ["requests", (row) => number(row.requests), "number"],
      ["received", (row) => bytes(row.received_bytes), "number"],
      ["sent", (row) => bytes(row.sent_bytes), "number"],
      ["open for", (row) => `${number(row.age_ms / 1000)} s`, "number"],
      ["", (row) => [el("button", { "aria-label": `Move the connection ${row.id}`, onclick: () => moved(row) }, "Move"), " ",
        el("button", { class: "bad", "aria-label": `Close the connection ${row.id}`,
          onclick: () => confirm(`Close ${row.id}?`) && act("close_connection", { id: row.id }, `${row.id} is closed`) }, "Close")]],
    ], rows));
  };
  const choose = (event) => { chosen[event.target.name] = event.target.value; draw(); };
  const form = el("form", { onsubmit: (event) => event.preventDefault(), oninput: choose },
    el("label", {}, "Filter by client, principal, address or state",
      el("input", { name: "filter", type: "search", value: chosen.filter, autocomplete: "off" })),
    el("label", {}, "Sort by", el("select", { name: "order" }, ORDERS.map(([title, key]) =>
      el("option", { value: key, selected: key === chosen.order }, title)))));
  draw();
  return [
    el("h1", {}, "Connections"),
    form,
    body,
    found.count > found.connections.length
      ? el("p", {}, `${number(found.count)} are open; ${number(found.connections.length)} are shown`) : null,
    ...found.unanswered.map((each) => el("p", { class: "error" },
      each.processor == null ? `Worker ${each.worker} does not answer` : `Processor ${each.processor} of ${each.listener} does not answer`)),
  ];
}

function moved(row) {
  const index = prompt(`Move ${row.id} to the processor with the number`, row.processor);
  if (index != null) act("move_connection", { id: row.id, processor: Number(index) }, `${row.id} is moved`);
}

async function topics() {
  const name = el("input", { name: "name", required: true, maxlength: 249, autocomplete: "off" });
  const count = el("input", { name: "partitions", type: "number", value: 1, min: 1, max: 10000 });
  const create = (event) => {
    event.preventDefault();
    act("create_topic", { name: name.value, partitions: Number(count.value) }, `${name.value} is created`);
  };
  return [
    el("h1", {}, "Topics"),
    el("form", { onsubmit: create }, el("label", {}, "New topic", name), el("label", {}, "Partitions", count),
      el("button", {}, "Create")),
    table("Topics", [
      ["name", (row) => link("topics", row.name)],
      ["partitions", (row) => number(row.partitions), "number"],
      ["", (row) => (row.internal ? "internal" : "")],
    ], await get("topics")),
  ];
}

async function topic(name) {
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

async function groups() {
  return [
    el("h1", {}, "Groups"),
    table("Groups", [
      ["name", (row) => link("groups", row.name)],
      ["state", (row) => row.state],
      ["type", (row) => row.type],
      ["protocol", (row) => row.protocol],
    ], await get("groups")),
  ];
}

async function group(name) {
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
    ], found.offsets),
    el("p", {}, el("button", { class: "bad", onclick: () => confirm(`Delete the group ${name} and its offsets?`) &&
      act("delete_group", { name }, `${name} is deleted`, "#groups") }, "Delete this group")),
  ];
}

async function transactions() {
  return [
    el("h1", {}, "Transactions"),
    table("Transactions", [
      ["transactional id", (row) => row.transactional_id],
      ["producer id", (row) => row.producer_id, "number"],
      ["state", (row) => row.state],
    ], await get("transactions")),
  ];
}

async function quotas() {
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
    table("Quotas", [
      ["of", (row) => row.entity],
      ["limits", (row) => Object.entries(row.quotas).map(([key, value]) => el("div", {}, `${key} = ${value}`))],
    ], await get("quotas")),
  ];
}

const resource = (row) => `${row.resource} ${row.name}${row.pattern === "PREFIXED" ? "*" : ""}`;

async function acls() {
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
  const field = (title, name, value) => el("label", {}, title, el("input", { name, value, required: true, autocomplete: "off" }));
  const choice = (title, name, values) => el("label", {}, title, el("select", { name }, values.map((each) => el("option", {}, each))));
  const create = (event) => {
    event.preventDefault();
    act("create_acl", Object.fromEntries(new FormData(event.target)), "the ACL is created");
  };
  return [el("h1", {}, "ACLs"), el("form", { onsubmit: create },
    choice("New ACL", "permission", ["ALLOW", "DENY"]), field("Principal", "principal", "User:"),
    choice("Operation", "operation", ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
      "CLUSTER_ACTION", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT", "ALL"]),
    choice("Resource", "resource", ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]),
    field("Name", "name", ""), choice("Pattern", "pattern", ["LITERAL", "PREFIXED"]), field("From host", "host", "*"),
    el("button", {}, "Create")), el("form", { onsubmit: (event) => event.preventDefault() },
    el("label", {}, "Filter by principal, resource or operation", filter)), body];
}

async function access() {
  const { listeners } = await get("server");
  const found = el("div", {});
  const field = (title, name, value, attributes = {}) =>
    el("label", {}, title, el("input", { name, value, maxlength: 4096, autocomplete: "off", ...attributes }));
  const choice = (title, name, values) =>
    el("label", {}, title, el("select", { name }, values.map((each) => el("option", {}, each))));
  const read = async (event) => {
    event.preventDefault();
    try {
      const answer = await get("access", Object.fromEntries(new FormData(event.target)));
      found.replaceChildren(table(`${answer.principal} on ${answer.resource} ${answer.name} from ${answer.host}`, [
        ["operation", (row) => row.operation],
        ["decision", (row) => el("span", { class: row.allowed ? "good" : "error" }, row.allowed ? "allowed" : "denied")],
        ["because", (row) => row.reason],
        ["rule", (row) => row.rule && `${row.rule.permission} ${row.rule.operation} to ${row.rule.principal} from ${row.rule.host} on ${resource(row.rule)}`],
      ], answer.operations));
    } catch (error) {
      found.replaceChildren(el("p", { class: "error", role: "alert" }, error.message));
    }
  };
  return [
    el("h1", {}, "Who may do what, and why not"),
    el("form", { onsubmit: read },
      field("Principal", "principal", "User:", { required: true }),
      choice("Resource", "resource", ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]),
      field("Name", "name", ""), field("From address", "host", "127.0.0.1"),
      choice("Listener", "listener", listeners.map((each) => each.name)), el("button", { class: "main" }, "Ask")),
    found,
  ];
}

async function audit() {
  const rows = await get("audit");
  const named = (row) => (row.resources || []).slice(0, 3).map((each) => `${each.type} ${each.name}`).join(", ");
  return [el("h1", {}, "Audit"), table("The latest events", [
    ["time", (row) => new Date(row.time_us / 1000).toISOString(), "time"],
    ["kind", (row) => row.kind],
    ["what", (row) => row.api_name || row.action],
    ["who", (row) => row.principal || row.attempted_principal],
    ["from", (row) => row.client_address],
    ["listener", (row) => row.listener],
    ["of", named],
    ["outcome", (row) => el("span", { class: ["denied", "error", "refused"].includes(row.outcome) ? "error" : "" }, row.outcome)],
    ["because", (row) => row.error_name || row.reason || row.detail],
  ], rows)];
}

async function testKit() {
  const found = await get("test_kit");
  const parts = [el("h1", {}, "Test kit")];
  if (found.wall_ms != null) parts.push(clockOf(found.wall_ms));
  if (found.nodes) {
    parts.push(table("Nodes", [
      ["node", (row) => row.id, "number"],
      ["listens on", (row) => Object.values(row.listeners).join(", ")],
      ["leads", (row) => number(row.leads), "number"],
      ["state", (row) => (row.running ? "running" : "stopped")],
      ["", (row) => el("button", { "aria-label": `${row.running ? "Stop" : "Start"} the node ${row.id}`,
        onclick: () => act("set_node", { node: row.id, running: !row.running },
          `node ${row.id} ${row.running ? "is stopped" : "runs"}`) }, row.running ? "Stop" : "Start")],
    ], found.nodes));
  }
  if (found.faults) parts.push(...faultsOf(found.faults));
  if (found.has_timeline) {
    const { text } = await get("timeline");
    parts.push(el("h2", {}, "Timeline"),
      el("pre", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Timeline" }, text || "nothing yet"));
  }
  return parts;
}

function clockOf(wallMs) {
  const forward = (ms, text) => [el("button", {
    onclick: () => act("advance_time", { advance_ms: ms }, `the time is ${text} later`) }, `+ ${text}`), " "];
  return el("p", {}, `The server's time is ${new Date(wallMs).toISOString()} `, forward(1000, "1 second"),
    forward(60000, "1 minute"), forward(3600000, "1 hour"), forward(86400000, "1 day"));
}

function faultsOf(faults) {
  const field = (title, name, attributes = {}) =>
    el("label", {}, title, el("input", { name, autocomplete: "off", ...attributes }));
  const add = (event) => {
    event.preventDefault();
    const rule = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value !== ""));
    for (const key of ["delay_ms", "count", "probability"]) if (rule[key] !== undefined) rule[key] = Number(rule[key]);
    act("add_fault", rule, "the fault is added");
  };
  return [
    table("Faults", [
      ["name", (row) => row.name],
      ["kind", (row) => row.kind],
      ["fired", (row) => number(row.fired), "number"],
    ], faults),
    el("form", { onsubmit: add },
      el("label", {}, "Kind", el("select", { name: "kind" }, KINDS.map((each) => el("option", {}, each)))),
      field("API", "api", { placeholder: "all" }), field("Topic", "topic", { placeholder: "all" }),
      field("Group", "group", { placeholder: "all" }), field("Client id", "client", { placeholder: "all" }),
      field("Error", "error", { placeholder: "e.g. REQUEST_TIMED_OUT" }),
      field("Delay in ms", "delay_ms", { type: "number", min: 0 }), field("At most", "count", { type: "number", min: 1 }),
      field("Probability", "probability", { type: "number", min: 0, max: 1, step: "any" }),
      el("button", { class: "main" }, "Add the fault")),
    el("p", {}, el("button", { onclick: () => act("add_chaos", {}, "faults of all kinds are added") }, "Chaos"), " ",
      el("button", { onclick: () => act("clear_faults", {}, "all faults are removed") }, "Remove all faults")),
  ];
}

const SHOWS = { overview, connections, topics, groups, transactions, quotas, acls, access, audit, test_kit: testKit };
const DETAILS = { topics: topic, groups: group };
const LIVE = new Set(["overview", "connections"]);

// ---- the frame

let shown = 0;

async function show(again = false) {
  clearTimeout(timer);
  if (!session.user) return;
  const mine = ++shown;
  const [view, name] = (location.hash.slice(1) || "overview").split("/");
  let content;
  try {
    content = name !== undefined && Object.hasOwn(DETAILS, view) ? await DETAILS[view](decodeURIComponent(name))
      : await (Object.hasOwn(SHOWS, view) ? SHOWS[view] : overview)();
  } catch (error) {
    content = [el("h1", {}, ([...VIEWS, TEST_KIT].find(([key]) => key === view) || ["", "Overview"])[1]), el("p", { class: "error" }, error.message)];
  }
  // Another view has been asked for meanwhile.
  if (mine !== shown || !session.user) return;
  for (const each of document.querySelectorAll("#nav a")) {
    if (each.hash === `#${view}` || (!location.hash && each.hash === "#overview")) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const held = again && main.contains(document.activeElement) && document.activeElement.matches("button, input, select");
  if (held) say("The view stands still while one of its buttons has the focus.");
  else {
    const scrolled = [...main.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    main.replaceChildren(...content.filter((each) => each != null));
    if (again) main.querySelectorAll(".scroll").forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
  }
  if (!again) main.focus({ preventScroll: true });
  if (LIVE.has(view) && name === undefined) timer = setTimeout(look, LOOK_MS);
}

function look() {
  if (document.hidden) timer = setTimeout(look, LOOK_MS);
  else show(true);
}

async function begin(body) {
  const found = await ask("login", body);
  sessionStorage.setItem("csrf", found.csrf);
  session = { ...session, ...found };
  enter();
}

function enter() {
  document.getElementById("nav").replaceChildren(...(session.has_test_kit ? [...VIEWS, TEST_KIT] : VIEWS).map(([key, title]) => el("a", { href: `#${key}` }, title)));
  document.getElementById("nav").hidden = false;
  document.getElementById("user").replaceChildren(el("span", {}, session.user),
    el("button", { onclick: logOut }, "Log out"));
  before = null;
  show();
}

async function logOut() {
  await ask("logout", {}).catch((error) => say(error.message));
  sessionStorage.removeItem("csrf");
  session = {};
  await start();
}

function logIn(problem = "") {
  clearTimeout(timer);
  document.getElementById("nav").hidden = true;
  document.getElementById("user").replaceChildren();
  const error = el("p", { class: "error", role: "alert" }, problem);
  const fields = session.needs_token
    ? [el("label", {}, "Token", el("input", { name: "token", type: "password", required: true, autocomplete: "off" }))]
    : [
      el("label", {}, "User", el("input", { name: "user", required: true, autocomplete: "username" })),
      el("label", {}, "Password", el("input", { name: "password", type: "password", required: true, autocomplete: "current-password" })),
      session.mechanisms.length > 1 ? el("label", {}, "Mechanism", el("select", { name: "mechanism" },
        session.mechanisms.map((each) => el("option", {}, each)))) : null,
    ];
  const submit = async (event) => {
    event.preventDefault();
    error.textContent = "";
    try {
      await begin(Object.fromEntries(new FormData(event.target)));
    } catch (problem) {
      error.textContent = problem.message;
    }
  };
  main.replaceChildren(el("div", { class: "card login" }, el("h1", {}, "Log in"),
    el("p", { class: "dim" }, session.needs_token
      ? `The listener ${session.listener} does not ask who a client is: the server's start message has the console's token.`
      : `As a user of the listener ${session.listener}. You see and do what this user may.`),
    el("form", { onsubmit: submit }, fields, el("button", { class: "main" }, "Log in")), error));
  main.querySelector("input").focus();
}

async function start() {
  try {
    session = await ask("session");
  } catch (error) {
    main.replaceChildren(el("p", { class: "error", role: "alert" }, error.message));
    return;
  }
  const token = /^#token=(.+)$/.exec(location.hash);
  if (token) history.replaceState(null, "", location.pathname);
  if (session.user) enter();
  else if (token) await begin({ token: decodeURIComponent(token[1]) }).catch((error) => logIn(error.message));
  else logIn();
}

window.addEventListener("hashchange", () => {
  say(said);
  said = "";
  show();
});
start();
