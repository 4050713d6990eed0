// Runs a Kafka broker for tests: `const kafka = await Klamm.start()`.

import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, KlammError } from "./client.js";

export { Client, KlammError };

/** The version of klamm that this package is part of, and that uvx and pipx install. */
export const VERSION = "0.1.0";

/** Milliseconds that a start may take: uvx and pipx get klamm first. */
export const START_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 20_000;
const LOOK_EVERY_MS = 5;
const KEPT_OUTPUT = 16 << 10;

export class Klamm extends Client {
  #child;
  #ended;
  #folder;

  /** Starts a broker in a process of its own, which ends with this one at the latest. */
  static async start({ settings = [], nodes, secure = false, command } = {}) {
    const [program, ...first] = command ?? findCommand();
    const folder = await mkdtemp(join(tmpdir(), "klamm-"));
    const ready = join(folder, "ready.json");
    const words = [...first, "serve", "--ephemeral", "--stop-at-eof", "--ready-file", ready];
    for (const one of nodes ? [...settings, `nodes=${nodes}`] : settings) words.push("--set", one);
    if (secure) words.push("--secure");
    // It stops when its standard input ends, whatever ends this process.
    const child = spawn(program, words, { stdio: ["pipe", "ignore", "pipe"] });
    let output = "";
    child.stderr.setEncoding("utf8").on("data", (text) => {
      output = (output + text).slice(-KEPT_OUTPUT);
    });
    child.stdin.on("error", () => {});
    let reason;
    const ended = new Promise((resolve) => {
      child.once("error", (error) => resolve((reason = error.message)));
      child.once("close", () => resolve((reason ??= output.trim())));
    });
    const deadline = Date.now() + START_TIMEOUT_MS;
    while (reason === undefined && Date.now() < deadline) {
      try {
        const found = JSON.parse(await readFile(ready, "utf8"));
        // A test that forgets to stop it ends nevertheless.
        for (const one of [child, child.stdin, child.stderr]) one.unref();
        return new Klamm(found, { child, ended, folder });
      } catch (error) {
        if (error.code !== "ENOENT") throw error;
        await sleep(LOOK_EVERY_MS);
      }
    }
    child.kill("SIGKILL");
    await rm(folder, { recursive: true, force: true });
    throw new KlammError(`the broker does not start: ${reason ?? output.trim()}`);
  }

  constructor({ bootstrap, listeners, control, token }, { child, ended, folder }) {
    super(control, token);
    this.bootstrap = bootstrap;
    this.listeners = listeners;
    this.#child = child;
    this.#ended = ended;
    this.#folder = folder;
  }

  /** The addresses that clients start from, as most of them take it: a list. */
  get brokers() {
    return this.bootstrap.split(",");
  }

  async stop() {
    this.#child.ref();
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), STOP_TIMEOUT_MS);
    await this.#ended;
    clearTimeout(timer);
    await rm(this.#folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.stop();
  }
}

/** The variable KLAMM, or the first of klamm, uvx, pipx and python3 that is there. */
export function findCommand(environment = process.env, isThere = (name) => isOnPath(name, environment)) {
  const named = (environment.KLAMM ?? "").split(/\s+/).filter(Boolean);
  if (named.length) return named;
  const found = [
    ["klamm"],
    ["uvx", "--from", `klamm==${VERSION}`, "klamm"],
    ["pipx", "run", "--spec", `klamm==${VERSION}`, "klamm"],
    ["python3", "-m", "klamm"],
    ["python", "-m", "klamm"],
  ].find(([program]) => isThere(program));
  if (found) return found;
  throw new KlammError("there is no klamm, uvx, pipx or python3; set the variable KLAMM to the command of klamm");
}

function isOnPath(name, { PATH = "" }) {
  const endings = process.platform === "win32" ? [".exe", ".cmd"] : [""];
  return PATH.split(delimiter).some((folder) =>
    endings.some((ending) => {
      try {
        accessSync(join(folder, name + ending), constants.X_OK);
        return true;
      } catch {
        return false;
      }
    }),
  );
}
