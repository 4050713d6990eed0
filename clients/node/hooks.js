// A broker that the tests of a file share, for Jest, Vitest and node:test.

import { mkdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Klamm, START_TIMEOUT_MS } from "./index.js";

/**
 * Starts a broker before the tests of a file and stops it after them. `hooks` has those of the test runner: nothing for
 * Jest's globals, otherwise what `import * as hooks from "vitest"` or `from "node:test"` gives.
 */
export function useKlamm(options = {}, hooks = globalThis) {
  const { beforeAll, afterAll = hooks.after, beforeEach, afterEach } = hooks;
  const first = beforeAll ? (start) => beforeAll(start, START_TIMEOUT_MS) : hooks.before;
  if (!first || !afterAll || !beforeEach || !afterEach) {
    throw new TypeError("hooks of the test runner are needed: useKlamm({}, await import('vitest'))");
  }
  let kafka;
  first(async () => {
    kafka = await Klamm.start(options);
  });
  beforeEach(() => kafka.forgetRequests());
  // Jest takes a function with a parameter for one that calls it when it is done.
  afterEach(async (...[context]) => {
    const failed = failureOf(context);
    if (failed) await report(kafka, failed);
    await kafka.clearFaults();
  });
  afterAll(() => kafka?.stop());
  return new Proxy({}, { get: (_, name) => bound(kafka, name) });
}

function bound(kafka, name) {
  if (!kafka) throw new Error("the broker has not been started: use it in tests and hooks alone");
  const found = Reflect.get(kafka, name, kafka);
  return typeof found === "function" ? found.bind(kafka) : found;
}

// Vitest's context has a task, node:test's is the test; Jest has none, and Jest's own state does not say.
function failureOf(context) {
  const task = context?.task;
  if (task?.result?.state === "fail") return { title: task.name, failure: task.result.errors?.[0]?.message };
  if (context?.passed === false && context.error) return { title: context.name, failure: context.error.message };
  return undefined;
}

async function report(kafka, { title, failure = "" }) {
  const reason = `the test failed: ${failure.split("\n")[0]}`;
  const { text, html } = await kafka.timeline({ title, failure: reason });
  if (!text) return;
  const folder = process.env.KLAMM_TIMELINE ?? join(tmpdir(), "klamm-timeline");
  const page = join(folder, `${title.replace(/[^A-Za-z0-9._-]+/g, "-").slice(0, 100)}.html`);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await writeFile(page, html, { mode: 0o600 });
  console.error(`klamm: timeline\n${text}\n${page}`);
}
