import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as hooks from "node:test";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, Klamm, KlammError, START_TIMEOUT_MS, VERSION, findCommand } from "../index.js";
import { useKlamm } from "../hooks.js";

const kafka = useKlamm({}, hooks);

test("records go in and come out", async () => {
  const topic = await kafka.createTopic({ partitions: 2, configs: { "retention.ms": 1000 } });
  const headers = [["trace", "/w=="], ["none", null]];
  assert.equal(await kafka.produce(topic, ["b25l", null], { key: "aw==", headers, encoding: "base64" }), 0);
  const records = await kafka.consume(topic, { count: 2 });
  assert.deepEqual(records.map((one) => [one.key, one.value]), [["k", "one"], ["k", null]]);
  assert.deepEqual((await kafka.consume(topic, { encoding: "base64" }))[0].headers, headers);
  assert.deepEqual(await kafka.consume(topic, { partition: 0, offset: 2 }), []);
  assert.equal((await kafka.topics())[topic], 2);
  await kafka.deleteTopic(topic);
});

test("errors have a status and a name", async () => {
  await assert.rejects(kafka.createTopic({ name: "a b" }), (error) => {
    assert.ok(error instanceof KlammError);
    assert.deepEqual([error.status, error.kafkaName], [409, "INVALID_TOPIC_EXCEPTION"]);
    return true;
  });
  await assert.rejects(kafka.fault("none"), { status: 404, message: 'there is no fault "none"' });
});

test("a fault ends with its test", async () => {
  const fault = await kafka.addFault({ kind: "delay", api: "Fetch", delay_ms: 5, name: "mine" });
  assert.deepEqual(fault, { name: "mine", kind: "delay", fired: 0 });
});

test("no fault is left", async () => {
  assert.deepEqual(await kafka.faults(), []);
});

test("nodes and time", async () => {
  await using_({ nodes: 2, settings: ["num.partitions=3"] }, async (broker) => {
    assert.equal(broker.brokers.length, 2);
    const topic = await broker.createTopic();
    const leader = (await broker.leaders(topic))[0];
    assert.equal((await broker.setNode(leader, false))[leader - 1].running, false);
    await broker.setNode(leader, true);
    assert.equal((await broker.moveLeader(topic, 0, 3 - leader))[0], 3 - leader);
    assert.deepEqual(await broker.moveCoordinator("readers", 2), { node: 2 });
    const before = Date.now();
    assert.ok((await broker.advanceMs(3_600_000)).wall_ms >= before + 3_600_000);
  });
});

test("users", async () => {
  await using_({ secure: true }, async (broker) => {
    await broker.addUser("alice");
    await broker.allow("alice", "READ", "TOPIC", "orders");
    assert.equal((await broker.acls({ user: "alice" }))[0].principal, "User:alice");
    const settings = await broker.clientSettings("kafkajs", { user: "alice" });
    assert.deepEqual(settings.sasl, { mechanism: "scram-sha-512", username: "alice", password: "secret" });
    assert.deepEqual(settings.brokers, [broker.listeners.secure]);
  });
});

async function using_(options, use) {
  const broker = await Klamm.start(options);
  try {
    await use(broker);
  } finally {
    await broker.stop();
  }
}

test("a broker that does not start says why", async () => {
  await assert.rejects(Klamm.start({ settings: ["num.partitons=3"] }), /did you mean "num.partitions"\?/);
  await assert.rejects(Klamm.start({ command: ["no-such-command"] }), /ENOENT/);
});

test("the command is the first that is there", () => {
  const found = (there) => findCommand({}, (name) => name === there).join(" ");
  assert.equal(found("klamm"), "klamm");
  assert.equal(found("uvx"), `uvx --from klamm==${VERSION} klamm`);
  assert.equal(found("pipx"), `pipx run --spec klamm==${VERSION} klamm`);
  assert.equal(found("python3"), "python3 -m klamm");
  assert.deepEqual(findCommand({ KLAMM: "/opt/klamm -x" }), ["/opt/klamm", "-x"]);
  assert.throws(() => findCommand({}, () => false), KlammError);
});

test("a failing test has a timeline", () => {
  const folder = mkdtempSync(join(tmpdir(), "klamm-test-"));
  const program = join(folder, "failing.test.mjs");
  const from = fileURLToPath(new URL("../hooks.js", import.meta.url));
  writeFileSync(
    program,
    `import * as hooks from "node:test";
    import { useKlamm } from ${JSON.stringify(from)};
    const kafka = useKlamm({ nodes: 2 }, hooks);
    hooks.test("it fails", async () => {
      await kafka.setNode(2, false);
      throw new Error("on purpose");
    });`,
  );
  const environment = { ...process.env, KLAMM_TIMELINE: folder };
  delete environment.NODE_TEST_CONTEXT;
  const { stdout, stderr, status } = spawnSync(process.execPath, ["--test", program], { env: environment });
  const said = String(stdout) + String(stderr);
  assert.equal(status, 1);
  if (!/klamm: timeline/.test(said)) return assert.match(process.version, /^v(18|20)\./, said);
  assert.match(said, /node 2 stopped/);
  assert.match(readFileSync(join(folder, "it-fails.html"), "utf8"), /on purpose/);
});

test("hooks are fit for Jest: none takes a parameter, which would be a callback", () => {
  const taken = [];
  const note = (hook, timeout) => taken.push([hook.length, timeout]);
  useKlamm({}, { beforeAll: note, afterAll: note, beforeEach: note, afterEach: note });
  assert.deepEqual(taken, [[0, START_TIMEOUT_MS], [0, undefined], [0, undefined], [0, undefined]]);
  assert.throws(() => useKlamm(), TypeError);
});

test("each operation has a method, each value a type", async () => {
  assert.equal((await kafka.about()).version, VERSION);
  const description = await kafka.openapi();
  const types = readFileSync(new URL("../index.d.ts", import.meta.url), "utf8");
  const operations = Object.values(description.paths).flatMap((methods) => Object.values(methods));
  assert.ok(operations.length > 30);
  for (const { operationId, parameters = [], requestBody } of operations) {
    assert.equal(typeof Client.prototype[operationId], "function", operationId);
    const [, declared] = types.match(new RegExp(`^  ${operationId}\\((.*)\\): `, "m")) ?? assert.fail(operationId);
    const options = { ...(requestBody?.content["application/json"].schema.properties ?? {}) };
    for (const one of parameters) if (one.in === "query") options[one.name] = one.schema;
    const named = declared.match(/options\?: (\w+)/)?.[1];
    const known = named ? bodyOf(types, named) : declared;
    for (const name of Object.keys(options)) {
      const camel = name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()).replace("advanceMs", "ms");
      assert.match(`${known} ${declared}`, new RegExp(`\\b(${name}|${camel})\\??:`), `${operationId} takes ${name}`);
    }
  }
  for (const [name, schema] of Object.entries(description.components.schemas)) {
    if (["AccessRule", "Error", "Done", "TopicName", "FirstOffset"].includes(name)) continue;
    const declared = [...bodyOf(types, name).matchAll(/^ {2}(\w+)\??:/gm)].map(([, member]) => member);
    assert.deepEqual(declared.sort(), Object.keys(schema.properties).sort(), name);
  }
});

function bodyOf(types, name) {
  return types.match(new RegExp(`^export interface ${name} {\n([^}]*)^}`, "m"))?.[1] ?? assert.fail(name);
}
