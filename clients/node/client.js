// The operations of klamm's control API; index.d.ts has their types.

/** What the control API refuses, or cannot do. */
export class KlammError extends Error {
  constructor(message, { status, code, name: kafkaName } = {}) {
    super(message);
    this.name = "KlammError";
    this.status = status;
    this.code = code;
    this.kafkaName = kafkaName;
  }
}

const text = (word) => encodeURIComponent(word).replaceAll(".", "%2E");

export class Client {
  #url;
  #token;

  constructor(url, token) {
    this.#url = url;
    this.#token = token;
  }

  /** Sends a request. Options go to the query, of POST to the body. */
  async call(method, path, options = {}) {
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    const request = { method, headers: { Authorization: `Bearer ${this.#token}` } };
    let url = this.#url + path;
    if (method === "POST") request.body = JSON.stringify(Object.fromEntries(given));
    else if (given.length) url += `?${new URLSearchParams(given)}`;
    const response = await fetch(url, request);
    const answer = await response.json();
    if (!response.ok) throw new KlammError(answer.error, { ...answer, status: response.status });
    return answer;
  }

  about() {
    return this.call("GET", "/");
  }

  openapi() {
    return this.call("GET", "/openapi.json");
  }

  async reset() {
    await this.call("POST", "/reset");
  }

  advanceMs(advance_ms) {
    return this.call("POST", "/time", { advance_ms });
  }

  // ---- topics and records

  topics() {
    return this.call("GET", "/topics");
  }

  async createTopic(options) {
    return (await this.call("POST", "/topics", options)).name;
  }

  async deleteTopic(topic) {
    await this.call("DELETE", `/topics/${text(topic)}`);
  }

  async produce(topic, values, options) {
    return (await this.call("POST", `/topics/${text(topic)}/records`, { ...options, values })).offset;
  }

  consume(topic, options) {
    return this.call("GET", `/topics/${text(topic)}/records`, options);
  }

  // ---- groups

  groups() {
    return this.call("GET", "/groups");
  }

  group(group, options) {
    return this.call("GET", `/groups/${text(group)}`, options);
  }

  async deleteGroup(group) {
    await this.call("DELETE", `/groups/${text(group)}`);
  }

  // ---- faults

  faults() {
    return this.call("GET", "/faults");
  }

  addFault(rule) {
    return this.call("POST", "/faults", rule);
  }

  chaos(options) {
    return this.call("POST", "/faults/chaos", options);
  }

  fault(name, options) {
    return this.call("GET", `/faults/${text(name)}`, options);
  }

  removeFault(name) {
    return this.call("DELETE", `/faults/${text(name)}`);
  }

  async clearFaults() {
    await this.call("DELETE", "/faults");
  }

  // ---- nodes

  nodes() {
    return this.call("GET", "/nodes");
  }

  setNode(node, running) {
    return this.call("POST", `/nodes/${node}`, { running });
  }

  leaders(topic) {
    return this.call("GET", `/leaders/${text(topic)}`);
  }

  moveLeader(topic, partition, node) {
    return this.call("POST", `/leaders/${text(topic)}`, { partition, node });
  }

  coordinator(key) {
    return this.call("GET", `/coordinators/${text(key)}`);
  }

  moveCoordinator(key, node) {
    return this.call("POST", `/coordinators/${text(key)}`, { node });
  }

  // ---- what clients did

  requests(options) {
    return this.call("GET", "/requests", options);
  }

  async forgetRequests() {
    await this.call("DELETE", "/requests");
  }

  timeline(options) {
    return this.call("GET", "/timeline", options);
  }

  // ---- users

  addUser(name, options) {
    return this.call("POST", "/users", { ...options, name });
  }

  acls(options) {
    return this.call("GET", "/acls", options);
  }

  allow(user, operation, resource_type, name, options) {
    return this.call("POST", "/acls/allow", { ...options, user, operation, resource_type, name });
  }

  deny(user, operation, resource_type, name, options) {
    return this.call("POST", "/acls/deny", { ...options, user, operation, resource_type, name });
  }

  async clearAcls(options) {
    await this.call("DELETE", "/acls", options);
  }

  clientSettings(client, options) {
    return this.call("GET", `/client-settings/${text(client)}`, options);
  }
}
