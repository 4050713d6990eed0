import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import kafkajs from "kafkajs";
import { start } from "./klamm.mjs";

let server;
before(async () => {
  server = await start();
});
after(() => server.stop());

async function produce(topic, value) {
  const kafka = new kafkajs.Kafka({ brokers: [server.bootstrap], logLevel: kafkajs.logLevel.NOTHING });
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
  await producer.connect();
  await producer.send({ topic, messages: [{ value }] });
  await producer.disconnect();
}

test("records go in and come out", async () => {
  const { name } = await server.call("POST", "/topics");
  await produce(name, "order 1");
  const records = await server.call("GET", `/topics/${name}/records`);
  assert.deepEqual(
    records.map((one) => one.value),
    ["order 1"],
  );
});

test("a producer tries again after a lost connection", async () => {
  const { name } = await server.call("POST", "/topics");
  await server.call("POST", "/faults", { kind: "disconnect", api: "Produce", topic: name, count: 1, name });
  await produce(name, "order 2");
  assert.equal((await server.call("GET", `/faults/${name}?wait=1`)).fired, 1);
  assert.equal((await server.call("GET", `/topics/${name}/records`)).length, 1);
});
