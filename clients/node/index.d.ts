/** The version of klamm that this package is part of, and that uvx and pipx install. */
export const VERSION: string;

/** Milliseconds that a start may take: uvx and pipx get klamm first. */
export const START_TIMEOUT_MS: number;

/** What the control API refuses, or cannot do. */
export class KlammError extends Error {
  /** 400 for a wrong argument, 404 if the named thing does not exist, 408 if the time is over, 409 if the broker refuses. */
  status?: number;
  /** Kafka's error code, with status 409. */
  code?: number;
  /** Kafka's name of the error, with status 409. */
  kafkaName?: string;
}

export interface StartOptions {
  /** Settings of the broker, "KEY=VALUE", as for `klamm serve --set`. */
  settings?: string[];
  /** Makes the broker several nodes. */
  nodes?: number;
  /** Clients connect with TLS and SCRAM; there are users and access control lists. */
  secure?: boolean;
  /** How to run klamm. Without it that is the variable KLAMM, or the first of klamm, uvx, pipx and python3 that is there. */
  command?: string[];
}

/** A broker in a process of its own. */
export class Klamm extends Client {
  static start(options?: StartOptions): Promise<Klamm>;
  /** The addresses that clients start from, with commas in between. */
  readonly bootstrap: string;
  /** The same as a list. */
  readonly brokers: string[];
  /** The address of each listener by its name. */
  readonly listeners: Record<string, string>;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The operations of klamm's control API. What the server refuses is a `KlammError`. */
export class Client {
  /** `url` and `token` are those of a ready file. */
  constructor(url: string, token: string);
  /** Sends a request. Options go to the query, of POST to the body. */
  call(method: string, path: string, options?: object): Promise<any>;
  about(): Promise<About>;
  openapi(): Promise<any>;
  /** Deletes all topics and the groups without members, removes all faults, drops the recorded requests. */
  reset(): Promise<void>;
  /** Moves the server's time forward. */
  advanceMs(ms: number): Promise<WallTime>;

  /** The topics, each with its number of partitions. */
  topics(): Promise<Record<string, number>>;
  /** Returns the name, which is a random one unless it is given. */
  createTopic(options?: { name?: string; partitions?: number; configs?: Record<string, unknown> }): Promise<string>;
  deleteTopic(topic: string): Promise<void>;
  /** Appends a record for each value, and returns the offset of the first. */
  produce(topic: string, values: (string | null)[], options?: ProduceOptions): Promise<number>;
  /** The records of a topic, or `count` of them as soon as they are there. */
  consume(topic: string, options?: ConsumeOptions): Promise<ConsumedRecord[]>;

  /** The groups, each with its state. */
  groups(): Promise<Record<string, string>>;
  /** A group; with `state`, `members` or `lag`, once it has that state, so many members, or that lag. */
  group(group: string, options?: { state?: string; members?: number; lag?: number; timeout_s?: number }): Promise<Group>;
  deleteGroup(group: string): Promise<void>;

  faults(): Promise<Fault[]>;
  /** Requests that match the rule get a fault. */
  addFault(rule: FaultRule): Promise<Fault>;
  /** A fault of every kind, each at random with a small probability; a seed gives the same ones again. */
  chaos(options?: { seed?: number; times?: number }): Promise<Fault[]>;
  /** One rule; with `wait`, once it has fired that many times. */
  fault(name: string, options?: { wait?: number; timeout_s?: number }): Promise<Fault>;
  removeFault(name: string): Promise<Fault>;
  clearFaults(): Promise<void>;

  nodes(): Promise<Node[]>;
  /** Stops or starts a node. */
  setNode(node: number, running: boolean): Promise<Node[]>;
  /** The leader of each partition, -1 for none. */
  leaders(topic: string): Promise<Record<string, number>>;
  /** Has a node lead a partition, or none. */
  moveLeader(topic: string, partition: number, node: number | null): Promise<Record<string, number>>;
  coordinator(key: string): Promise<Coordinator>;
  moveCoordinator(key: string, node: number): Promise<Coordinator>;

  /** The requests of clients that have ended, oldest first; with a `count`, as soon as there are that many. */
  requests(options?: { api?: string; count?: number; timeout_s?: number }): Promise<RecordedRequest[]>;
  /** The timeline begins here. */
  forgetRequests(): Promise<void>;
  timeline(options?: { title?: string; failure?: string; columns?: number }): Promise<Timeline>;

  /** Makes a user, or changes its password. */
  addUser(name: string, options?: { password?: string }): Promise<User>;
  acls(options?: { user?: string }): Promise<Acl[]>;
  allow(user: string, operation: string, resourceType: string, name: string, options?: AccessOptions): Promise<Acl>;
  deny(user: string, operation: string, resourceType: string, name: string, options?: AccessOptions): Promise<Acl>;
  clearAcls(options?: { user?: string }): Promise<void>;
  /** What a client library needs to connect, e.g. the object that `new Kafka` of `kafkajs` takes. */
  clientSettings(client: ClientName, options?: { user?: string }): Promise<any>;
}

export type ClientName =
  | "confluent-kafka"
  | "confluent-kafka-javascript"
  | "go"
  | "java"
  | "kafka-python"
  | "kafkajs";

export type FaultKind =
  | "error"
  | "error_after"
  | "delay"
  | "slow"
  | "disconnect"
  | "disconnect_after"
  | "truncate"
  | "corrupt"
  | "stale_metadata"
  | "coordinator_moved"
  | "throttle"
  | "partition_error"
  | "reorder";

/** How keys, values, and values of headers are written as text. */
export type Encoding = "utf-8" | "base64";

export interface ProduceOptions {
  key?: string;
  partition?: number;
  headers?: [string, string | null][];
  timestamp_ms?: number;
  encoding?: Encoding;
}

export interface ConsumeOptions {
  count?: number;
  timeout_s?: number;
  isolation?: "read_committed" | "read_uncommitted";
  partition?: number;
  offset?: number;
  encoding?: Encoding;
}

export interface AccessOptions {
  /** True for all names that begin so. */
  prefix?: boolean;
  host?: string;
}

export interface About {
  version: string;
  bootstrap: string;
  listeners: Record<string, string>;
}

export interface WallTime {
  wall_ms: number;
}

export interface ConsumedRecord {
  partition: number;
  offset: number;
  timestamp_ms: number;
  key: string | null;
  value: string | null;
  headers: [string, string | null][];
}

export interface Group {
  name: string;
  state: string;
  members: GroupMember[];
  partitions: GroupPartition[];
  lag: number;
}

export interface GroupMember {
  member_id: string;
  client_id: string;
  instance_id: string | null;
  partitions: AssignedPartition[];
}

export interface AssignedPartition {
  topic: string;
  partition: number;
}

export interface GroupPartition {
  topic: string;
  partition: number;
  committed: number | null;
  lag: number;
}

/** What is unset matches every request; texts are patterns. */
export interface FaultRule {
  kind: FaultKind;
  name?: string;
  api?: string | string[];
  topic?: string;
  partition?: number;
  group?: string;
  client?: string;
  listener?: string;
  node?: number;
  error?: string;
  delay_ms?: number;
  after?: number;
  count?: number;
  probability?: number;
}

export interface Fault {
  name: string;
  kind: FaultKind;
  fired: number;
}

export interface Node {
  id: number;
  running: boolean;
  epoch: number;
  listeners: Record<string, string>;
  leads: number;
}

export interface Coordinator {
  node: number;
}

export interface RecordedRequest {
  api: string;
  version: number;
  client_id: string | null;
  correlation_id: number;
  listener: string;
  connection_id: string;
  principal: string;
  ended_ms: number;
  duration_ms: number;
  outcome: string;
  error_code: number;
  request: any;
  response: any;
  raw: string;
}

export interface Timeline {
  text: string;
  html: string;
}

export interface User {
  name: string;
  password: string;
}

export interface Acl {
  principal: string;
  host: string;
  operation: string;
  permission: string;
  resource_type: string;
  name: string;
  pattern_type: string;
}
