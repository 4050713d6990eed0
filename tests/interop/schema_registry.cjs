// Serializers of both client libraries for Node with the registry at the URL of the first argument.
const assert = require('node:assert');
const confluent = require('@confluentinc/schemaregistry');
const { SchemaRegistry, SchemaType } = require('@kafkajs/confluent-schema-registry');

const fields = [{ name: 'id', type: 'string' }];
const avro = { type: 'record', name: 'Order', namespace: 'shop', fields };
const json = { type: 'object', properties: { id: { type: 'string' } } };
const protobuf = 'syntax = "proto3"; package shop; message Order { string id = 1; }';

async function ofKafkajs(host) {
  const registry = new SchemaRegistry({ host });
  const schemas = { AVRO: JSON.stringify(avro), JSON: JSON.stringify(json), PROTOBUF: protobuf };
  for (const type of process.argv.slice(3)) {
    const schema = { type: SchemaType[type], schema: schemas[type] };
    const { id } = await registry.register(schema, { subject: `kafkajs-${type}` });
    const read = await registry.decode(await registry.encode(id, { id: '7' }));
    assert.strictEqual(read.id, '7', type);
  }
  const other = { ...avro, fields: [{ name: 'id', type: 'int' }] };
  const refused = registry.register({ type: 'AVRO', schema: JSON.stringify(other) }, { subject: 'kafkajs-AVRO' });
  await assert.rejects(refused, /TYPE_MISMATCH/);
}

async function ofConfluent(host) {
  const client = new confluent.SchemaRegistryClient({ baseURLs: [host] });
  const kinds = { AVRO: ['Avro', avro], JSON: ['Json', json] };
  for (const [schemaType, [name, schema]] of Object.entries(kinds)) {
    const topic = `confluent-${schemaType}`;
    await client.register(`${topic}-value`, { schemaType, schema: JSON.stringify(schema) });
    const value = confluent.SerdeType.VALUE;
    const serializer = new confluent[`${name}Serializer`](client, value, { useLatestVersion: true });
    const deserializer = new confluent[`${name}Deserializer`](client, value, {});
    const read = await deserializer.deserialize(topic, await serializer.serialize(topic, { id: '7' }));
    assert.strictEqual(read.id, '7', schemaType);
  }
}

ofKafkajs(process.argv[2])
  .then(() => ofConfluent(process.argv[2]))
  .then(() => process.exit(0), (error) => {
    console.error(error);
    process.exit(1);
  });
