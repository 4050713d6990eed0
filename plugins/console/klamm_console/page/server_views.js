// The views of the server itself.

import { act, get } from "./console.js";
import { bytes, choice, el, field, form, link, number, table } from "./elements.js";

const DAY_S = 86400;

function gauge(title, value, text, share, note) {
  const heat = share == null ? "" : share > 0.8 ? "hot" : share > 0.5 ? "warm" : "";
  return el("li", { class: heat }, el("b", {}, title), el("strong", {}, text),
    share == null ? null : el("meter", { min: 0, max: 1, value: Math.min(1, share), "aria-label": title }),
    el("div", { class: "dim" }, note));
}

// The card of each stage that limits the server; a quota has none.
const CARDS = { accept: "Accept", handshake: "Set-up", processor: "Processors", interpreter: "Processors", pool: "Memory",
  queue: "Queue", handler: "Handlers", disk: "Disk", send: "Answers" };

// What `klamm explain` finds; null while that is not known.
function limits(found) {
  if (!found) return null;
  if (!found.length) return el("p", { class: "dim" }, "Nothing limits this server now.");
  return [
    el("h2", {}, "What limits this server now"),
    el("ul", {}, found.map((one) => el("li", {}, el("b", {}, one.stage), `: ${one.text}`,
      one.look_at.map((each) => el("div", { class: "dim" }, `look at: ${each}`))))),
  ];
}

let before = null;

function stages(now) {
  const s = now.stages;
  const old = before ? before.stages : s;
  // A server that has been started again counts from 0.
  const seconds = before ? Math.max(0, now.time_ns - before.time_ns) / 1e9 : 0;
  before = now;
  const rate = (name) => (seconds ? Math.max(0, (s[name] - old[name]) / seconds) : 0);
  const processors = rate("processor_busy_s") / Math.max(1, s.processors);
  const handlers = rate("handler_busy_s") / Math.max(1, s.handlers);
  // The seconds of workers are added up.
  const blocked = rate("acceptor_blocked_s") / Math.max(1, s.workers_ready || 1);
  const percent = (share) => `${Math.round(share * 100)} %`;
  const cards = el("ol", { class: "stages", "aria-label": "Stages of a request" },
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
  const limiting = new Set((now.limits || []).map((one) => CARDS[one.stage]));
  for (const card of cards.children) {
    if (limiting.has(card.firstChild.textContent)) card.append(el("strong", { class: "error limits" }, "limits now"));
  }
  return cards;
}

export function overview(now) {
  const nodes = now.cluster.nodes.map((node) => `${node.id} at ${node.host}:${node.port}`).join(", ");
  return [
    el("h1", {}, "Overview"),
    stages(now),
    ...[limits(now.limits)].flat(),
    now.stages.workers ? el("p", { class: now.stages.workers_ready < now.stages.workers ? "error" : "" },
      `${now.stages.workers_ready} of ${now.stages.workers} workers serve; ${now.stages.workers_restarted} have been restarted`) : null,
    now.cluster.unanswered
      ? el("p", { class: "error" }, `The console's listener does not answer: ${now.cluster.unanswered}. Only this page and the connections need no answer.`)
      : el("p", { class: "dim" }, `Cluster ${now.cluster.cluster_id}, nodes ${nodes}`),
    table("Listeners", [
      ["name", (row) => link("overview", row.name)],
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

export async function listener(name) {
  const found = await get("listener", { name });
  return [el("h1", {}, `Listener ${name}`), ...found.parts.flatMap((each) => partOf(each))];
}

// A part, and its own parts below it.
function partOf(part, above = "") {
  const title = `${part.kind} ${above}${part.name}`;
  return [
    el("h2", {}, title, " ", el("span", { class: "dim" }, `of ${part.distribution} ${part.version}`)),
    part.settings.length ? table(`Settings of the ${title}`, [
      ["setting", (row) => (row.default ? row.key : el("strong", {}, row.key))],
      ["value", (row) => el("code", {}, row.value === null ? "unset" : JSON.stringify(row.value))],
      ["from", (row) => (row.default ? "default" : "configuration")],
    ], part.settings) : el("p", { class: "dim" }, "It has no settings."),
    ...part.parts.flatMap((each) => partOf(each, `${above}${part.name} / `)),
  ];
}

const ORDERS = [
  ["id", "id"],
  ["time of processors", "processor_ms"],
  ["time of handlers", "handler_ms"],
  ["age of the request", "in_flight_ms"],
  ["bytes held", "held_bytes"],
  ["bytes unsent", "unsent_bytes"],
  ["received", "received_bytes"],
  ["sent", "sent_bytes"],
];
// The choices stay while the view is drawn again.
const chosen = { filter: "", order: "id" };

export function connections(found) {
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
      ["unsent", (row) => bytes(row.unsent_bytes), "number"],
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
  const choices = form(() => {},
    field("Filter by client, principal, address or state", "filter", { type: "search", value: chosen.filter }),
    el("label", {}, "Sort by", el("select", { name: "order" }, ORDERS.map(([title, key]) =>
      el("option", { value: key, selected: key === chosen.order }, title)))));
  choices.addEventListener("input", choose);
  draw();
  return [
    el("h1", {}, "Connections"),
    choices,
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
export async function access() {
  const { listeners } = await get("server");
  const found = el("div", {});
  const read = async (asked) => {
    try {
      const answer = await get("access", asked);
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
    form(read,
      field("Principal", "principal", { value: "User:", required: true, maxlength: 4096 }),
      choice("Resource", "resource", ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]),
      field("Name", "name", { maxlength: 4096 }), field("From address", "host", { value: "127.0.0.1" }),
      choice("Listener", "listener", listeners.map((each) => each.name)), el("button", { class: "main" }, "Ask")),
    found,
  ];
}

export async function findings() {
  const body = el("div", {});
  const look = async ({ hours }) => {
    body.replaceChildren(el("p", { role: "status" }, "The rules read the spool…"));
    try {
      body.replaceChildren(...found(await get("findings", { hours })));
    } catch (error) {
      body.replaceChildren(el("p", { class: "error", role: "alert" }, error.message));
    }
  };
  look({ hours: 24 });
  return [
    el("h1", {}, "Findings"),
    form(look, choice("Of the last", "hours", [["day", 24], ["hour", 1], ["week", 168]]), el("button", { class: "main" }, "Look")),
    body,
  ];
}

function found(answer) {
  const moment = (ms) => new Date(ms).toISOString();
  return [
    answer.problem ? el("p", { class: "error", role: "alert" }, answer.problem) : "",
    table(`What the rules have found, as of ${moment(answer.time_ms)}`, [
      ["severity", (row) => el("span", { class: ["critical", "high"].includes(row.severity) ? "error" : "" }, row.severity)],
      ["what", (row) => [el("div", {}, row.message), el("div", { class: "dim" }, row.about)]],
      ["who", (row) => row.principal],
      ["from", (row) => row.address],
      ["of", (row) => row.objects.map((each) => el("div", {}, each))],
      ["events", (row) => number(row.count), "number"],
      ["first", (row) => moment(row.first_ms), "time"],
      ["last", (row) => moment(row.last_ms), "time"],
    ], answer.findings),
    answer.is_cut ? el("p", { class: "dim" }, "There are more; klamm audit detect has all.") : "",
  ];
}

export function audit(rows) {
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
