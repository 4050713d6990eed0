import { Klamm } from "./index.js";

/** Takes the place of the class of `@testcontainers/kafka`. The image has no meaning. */
export class KafkaContainer {
  constructor(image: string);
  withKraft(): this;
  start(): Promise<StartedKafkaContainer>;
}

export class StartedKafkaContainer {
  private constructor();
  /** The broker, for faults, time and waits. */
  readonly klamm: Klamm;
  getHost(): string;
  /** The port of the broker, whichever port of a container is asked for. */
  getMappedPort(port: number): number;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
