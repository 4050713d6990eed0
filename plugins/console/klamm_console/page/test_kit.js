// The view of a server for tests.

import { act, get } from "./console.js";
import { choice, el, field, form, number, table } from "./elements.js";

const KINDS = ["error", "error_after", "delay", "slow", "disconnect", "disconnect_after", "truncate", "corrupt",
  "stale_metadata", "coordinator_moved", "throttle", "partition_error", "reorder"];

export async function testKit() {
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
  const add = (values) => {
    const rule = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
    for (const key of ["delay_ms", "count", "probability"]) if (rule[key] !== undefined) rule[key] = Number(rule[key]);
    act("add_fault", rule, "the fault is added");
  };
  return [
    table("Faults", [
      ["name", (row) => row.name],
      ["kind", (row) => row.kind],
      ["fired", (row) => number(row.fired), "number"],
    ], faults),
    form(add,
      choice("Kind", "kind", KINDS),
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
