// The console's page: the login, the frame, and the requests.

import * as cluster from "./cluster_views.js";
import { el } from "./elements.js";
import * as server from "./server_views.js";
import { testKit } from "./test_kit.js";

const main = document.getElementById("main");
const status = document.getElementById("status");
const LOOK_MS = 2000;
// Their titles, and the functions that draw them.
const VIEWS = {
  overview: ["Overview", server.overview],
  connections: ["Connections", server.connections],
  topics: ["Topics", cluster.topics],
  groups: ["Groups", cluster.groups],
  transactions: ["Transactions", cluster.transactions],
  quotas: ["Quotas", cluster.quotas],
  users: ["Users", cluster.users],
  acls: ["ACLs", cluster.acls],
  access: ["Who may", server.access],
  audit: ["Audit", server.audit],
  test_kit: ["Test kit", testKit],
};
const DETAILS = { topics: cluster.topic, groups: cluster.group };
const LIVE = new Set(["overview", "connections"]);
let session = {};
let timer = 0;

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

async function show(again = false) {
  clearTimeout(timer);
  if (!session.user) return;
  const mine = ++shown;
  const [asked, name] = location.hash.slice(1).split("/");
  const view = Object.hasOwn(VIEWS, asked) ? asked : "overview";
  const [title, draw] = VIEWS[view];
  let content;
  try {
    content = name !== undefined && Object.hasOwn(DETAILS, view) ? await DETAILS[view](decodeURIComponent(name)) : await draw();
  } catch (error) {
    content = [el("h1", {}, title), el("p", { class: "error" }, error.message)];
  }
  // Another view has been asked for meanwhile.
  if (mine !== shown || !session.user) return;
  for (const each of document.querySelectorAll("#nav a")) {
    if (each.hash === `#${view}`) each.setAttribute("aria-current", "page");
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
