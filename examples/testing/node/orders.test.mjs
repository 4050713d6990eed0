import assert from "node:assert/strict";
import * as hooks from "node:test";
import { test } from "node:test";
import kafkajs from "kafkajs";
import { Klamm } from "klamm";
import { useKlamm } from "klamm/hooks";

const broker = useKlamm({}, hooks);

test("orders arrive", async () => {
  const topic = await broker.createTopic();
  await placeOrder(topic, "order 1", { brokers: broker.brokers });
  assert.equal((await broker.consume(topic))[0].value, "order 1");
});

test("an order is sent again after a lost connection", async () => {
  const topic = await broker.createTopic();
  const lost = await broker.addFault({ kind: "disconnect", api: "Produce", topic, count: 1 });
  await placeOrder(topic, "order 2", { brokers: broker.brokers });
  await broker.fault(lost.name, { wait: 1 });
  assert.equal((await broker.consume(topic)).length, 1);
});

test("clients log in", async () => {
  const secure = await Klamm.start({ secure: true });
  const topic = await secure.createTopic();
  await secure.addUser("alice");
  await secure.allow("alice", "ALL", "TOPIC", topic);
  await placeOrder(topic, "order 3", await secure.clientSettings("kafkajs", { user: "alice" }));
  assert.equal((await secure.consume(topic)).length, 1);
  await secure.stop();
});

// The code under test: it sends an order.
async function placeOrder(topic, order, settings) {
  const kafka = new kafkajs.Kafka({ ...settings, logLevel: kafkajs.logLevel.NOTHING });
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
  await producer.connect();
  await producer.send({ topic, messages: [{ value: order }] });
  await producer.disconnect();
}
