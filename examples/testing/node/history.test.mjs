// What clients do and see becomes a history, in which `klamm verify-history` looks for what a broker must not do.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as hooks from "node:test";
import { test } from "node:test";
import kafkajs from "kafkajs";
import { useKlamm } from "klamm/hooks";

const broker = useKlamm({}, hooks);
const ORDERS = 20;

class Recorder {
  constructor(file) {
    this.file = file;
  }

  // Records `work` as one operation of a process. What fails has an unknown outcome.
  async operation(process, f, value, work) {
    this.#write({ process, type: "invoke", f, value });
    try {
      this.#write({ process, type: "ok", f, value: await work() });
    } catch (error) {
      this.#write({ process, type: "info", f, value });
      throw error;
    }
  }

  #write(event) {
    appendFileSync(this.file, `${JSON.stringify(event)}\n`);
  }
}

test("no order is lost or doubled, although answers are lost", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "history-")), "history.jsonl");
  const recorder = new Recorder(file);
  const topic = await broker.createTopic();
  const kafka = new kafkajs.Kafka({ brokers: broker.brokers, logLevel: kafkajs.logLevel.NOTHING });
  await broker.addFault({ kind: "disconnect_after", api: "Produce", topic, count: 1 });

  const producer = kafka.producer({
    createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  for (let order = 0; order < ORDERS; order++) {
    await recorder.operation("producer", "send", [["send", topic, order]], async () => {
      const [sent] = await producer.send({ topic, messages: [{ value: String(order) }] });
      return [["send", topic, order, Number(sent.baseOffset)]];
    });
  }
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: `${topic}-readers` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let read = 0;
  await new Promise((resolve, reject) => {
    const eachBatch = async ({ batch }) => {
      const found = batch.messages.map((message) => [Number(message.offset), Number(message.value)]);
      await recorder.operation("consumer", "poll", [["poll"]], async () => [["poll", { [topic]: found }]]);
      read += found.length;
      if (read >= ORDERS) resolve();
    };
    consumer.run({ eachBatch }).catch(reject);
  });
  await consumer.disconnect();

  const [command, ...words] = (process.env.KLAMM ?? "klamm").split(" ");
  const said = execFileSync(command, [...words, "verify-history", file], { encoding: "utf8" });
  assert.match(said, / 0 anomalies/);
});
