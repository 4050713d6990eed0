// What tests use of Testcontainers' KafkaContainer, on klamm: they move by the name of the package that they import.

import { Klamm } from "./index.js";

/** Takes the name of an image as Testcontainers does, and has no use for it. */
export class KafkaContainer {
  withKraft() {
    return this;
  }

  async start() {
    return new StartedKafkaContainer(await Klamm.start());
  }
}

export class StartedKafkaContainer {
  constructor(klamm) {
    this.klamm = klamm;
  }

  getHost() {
    return this.#address().hostname;
  }

  /** The port of the broker, whichever port of a container is asked for. */
  getMappedPort() {
    return Number(this.#address().port);
  }

  async stop() {
    await this.klamm.stop();
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.stop();
  }

  #address() {
    return new URL(`kafka://${this.klamm.brokers[0]}`);
  }
}
