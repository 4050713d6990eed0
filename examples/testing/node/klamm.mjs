// Runs a broker for tests.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export async function start() {
  const folder = await mkdtemp(join(tmpdir(), "klamm-"));
  const ready = join(folder, "ready.json");
  const [command, ...words] = (process.env.KLAMM || "klamm").split(" ");
  const child = spawn(command, [...words, "serve", "--ephemeral", "--ready-file", ready], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  async function stop() {
    child.kill("SIGTERM");
    await ended;
    await rm(folder, { recursive: true });
  }
  for (let waited = 0; waited < 3000; waited++) {
    try {
      const found = JSON.parse(await readFile(ready, "utf8"));
      const bootstrap = found.listeners.default;
      return { bootstrap, call: (...request) => call(found, ...request), stop };
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
      await sleep(10);
    }
  }
  await stop();
  throw new Error("the broker does not start");
}

async function call({ control, token }, method, path, body) {
  const response = await fetch(control + path, {
    method,
    headers: { Authorization: `Bearer ${token}` },
    body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${answer.error}`);
  return answer;
}
