// A test as it is with Testcontainers, but for the name of the package that has KafkaContainer.

import assert from "node:assert/strict";
import test from "node:test";
import kafkajs from "kafkajs";
import { KafkaContainer } from "klamm/testcontainers";

const { Kafka, logLevel } = kafkajs;

test("a message arrives", async () => {
  const container = await new KafkaContainer("confluentinc/cp-kafka:7.9.1").withKraft().start();
  try {
    const brokers = [`${container.getHost()}:${container.getMappedPort(9093)}`];
    const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING });
    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic: "orders", messages: [{ value: "order 1" }] });
    await producer.disconnect();
    const consumer = kafka.consumer({ groupId: "readers" });
    await consumer.connect();
    await consumer.subscribe({ topic: "orders", fromBeginning: true });
    const value = await new Promise((resolve) =>
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }),
    );
    assert.equal(value, "order 1");
    await consumer.disconnect();
  } finally {
    await container.stop();
  }
});
