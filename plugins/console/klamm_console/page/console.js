// The console's page: the login, the frame, and the requests.

import * as cluster from "./cluster_views.js";
import { el } from "./elements.js";
import * as server from "./server_views.js";
import { testKit } from "./test_kit.js";

const main = document.getElementById("main");
const status = document.getElementById("status");
const live = document.getElementById("live");
const SILENT_MS = 30000;
const MOST_WAIT_MS = 30000;
// Their titles, and the functions that draw them; those with a path of the API change by themselves, and get what it has.
const VIEWS = {
  overview: ["Overview", server.overview, "server"],
  connections: ["Connections", server.connections, "connections"],
  topics: ["Topics", cluster.topics],
  groups: ["Groups", cluster.groups, "groups"],
  transactions: ["Transactions", cluster.transactions, "transactions"],
  quotas: ["Quotas", cluster.quotas],
  users: ["Users", cluster.users],
  acls: ["ACLs", cluster.acls],
  access: ["Who may", server.access],
  audit: ["Audit", server.audit, "audit"],
  findings: ["Findings", server.findings],
  test_kit: ["Test kit", testKit],
};
const DETAILS = { overview: server.listener, topics: cluster.topic, groups: cluster.group };
let session = {};

const say = (text) => { status.textContent = text; };

// ---- requests

const headers = (more = {}) => ({ "X-Klamm-Csrf": sessionStorage.getItem("csrf") || "", ...more });
// What the page asks for by itself does not keep an absent user logged in.
const UNASKED = { "X-Klamm-Live": "1" };

async function checked(answer) {
  if (answer.ok) return answer;
  const { error } = await answer.json();
  if (answer.status === 401 && session.user) {
    session = {};
    await start();
  }
  throw new Error(error);
}

async function ask(path, body, more) {
  const options = { headers: headers(more) };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return (await checked(await fetch(`api/${path}`, options))).json();
}

// Reads a stream of events until it ends or breaks. EventSource cannot send the page's secret, so this is a fetch.
async function listen(path, more, stop, seen) {
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(new Error("the stream is silent")), SILENT_MS);
  };
  try {
    alive();
    const { body } = await checked(await fetch(`api/events?view=${path}`, { headers: headers(more), signal: stop.signal }));
    let text = "";
    for (const reader = body.pipeThrough(new TextDecoderStream()).getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) throw new Error("the server has ended the stream");
      alive();
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const [, kind, data] of events.map((each) => /^event: (\w+)\ndata: (.*)$/.exec(each) || [])) {
        if (kind) seen(kind, JSON.parse(data));
      }
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

export const get = (path, query = {}) => ask(`${path}?${new URLSearchParams(query)}`);

// Does an action, and then shows `next` or the same view again.
export async function act(path, body, done, next) {
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

// ---- the frame

let shown = 0;
let stop = new AbortController();

function show() {
  stop.abort();
  live.textContent = "";
  if (!session.user) return;
  const mine = ++shown;
  const [asked, name] = location.hash.slice(1).split("/");
  const view = Object.hasOwn(VIEWS, asked) ? asked : "overview";
  for (const each of document.querySelectorAll("#nav a")) {
    if (each.hash === `#${view}`) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const [title, draw, path] = VIEWS[view];
  let again = false;
  // Draws what a function returns, or why it cannot, unless another view is asked for meanwhile.
  const put = async (made) => {
    let content;
    try {
      content = await made();
    } catch (error) {
      content = [el("h1", {}, title), el("p", { class: "error" }, error.message)];
    }
    if (mine !== shown || !session.user) return;
    place(content.filter((each) => each != null), again);
    again = true;
  };
  if (name !== undefined && Object.hasOwn(DETAILS, view)) return put(() => DETAILS[view](decodeURIComponent(name)));
  return path ? follow(path, draw, put, () => mine === shown) : put(draw);
}

function place(content, again) {
  const focused = document.activeElement;
  const regions = [...main.querySelectorAll(".scroll")];
  const scrolled = regions.map((each) => each.scrollLeft);
  if (again && focused !== main && main.contains(focused) && !regions.includes(focused)) {
    say("The view stands still while one of its links, buttons or fields has the focus.");
    return;
  }
  main.replaceChildren(...content);
  if (!again) main.focus({ preventScroll: true });
  else {
    main.querySelectorAll(".scroll").forEach((each, index) => {
      each.scrollLeft = scrolled[index] || 0;
      if (regions[index] === focused) each.focus({ preventScroll: true });
    });
  }
}

// Shows a view that changes. While there is no stream, it is asked for at each new attempt.
async function follow(path, draw, put, isShown) {
  let waitMs = 1000;
  for (let more = {}; isShown(); more = UNASKED) {
    const own = stop = new AbortController();
    let problem = "";
    try {
      await listen(path, more, own, (kind, content) => {
        waitMs = 1000;
        setLive(true);
        put(() => {
          if (kind === "view") return draw(content);
          throw new Error(content.error);
        });
      });
    } catch (error) {
      problem = document.hidden ? "the page is hidden" : error.message;
    }
    if (!isShown() || !session.user) return;
    setLive(false, problem);
    if (document.hidden) await new Promise((done) => { document.addEventListener("visibilitychange", done, { once: true }); });
    else {
      await put(async () => draw(await ask(path, undefined, UNASKED)));
      await new Promise((done) => { setTimeout(done, waitMs); });
      waitMs = Math.min(2 * waitMs, MOST_WAIT_MS);
    }
  }
}

function setLive(is, problem) {
  const text = is ? "Live" : `Not live: ${problem}`;
  if (live.textContent === text) return;
  live.className = is ? "good" : "error";
  live.textContent = text;
}

async function begin(body) {
  const found = await ask("login", body);
  sessionStorage.setItem("csrf", found.csrf);
  session = { ...session, ...found };
  enter();
}

function enter() {
  document.getElementById("nav").replaceChildren(...Object.entries(VIEWS)
    .filter(([key]) => key !== "test_kit" || session.has_test_kit)
    .map(([key, [title]]) => el("a", { href: `#${key}` }, title)));
  document.getElementById("nav").hidden = false;
  document.getElementById("user").replaceChildren(el("span", {}, session.user),
    el("button", { onclick: logOut }, "Log out"));
  show();
}

async function logOut() {
  await ask("logout", {}).catch((error) => say(error.message));
  sessionStorage.removeItem("csrf");
  session = {};
  await start();
}

function logIn(problem = "") {
  stop.abort();
  live.textContent = "";
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

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stop.abort();
});
window.addEventListener("hashchange", () => {
  say(said);
  said = "";
  show();
});
start();
