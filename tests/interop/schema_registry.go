// Unmodified serializers for Go with the Schema Registry at the address of the first argument; the others are types.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"

	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/avrov2"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/jsonschema"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/protobuf"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
)

type Order struct {
	ID    string  `avro:"id" json:"id"`
	Total float64 `avro:"total" json:"total"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](found T, err error) T {
	check(err)
	return found
}

func equal(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("%v is not %v", found, expected))
	}
}

func avro(client schemaregistry.Client) {
	writer := must(avrov2.NewSerializer(client, serde.ValueSerde, avrov2.NewSerializerConfig()))
	reader := must(avrov2.NewDeserializer(client, serde.ValueSerde, avrov2.NewDeserializerConfig()))
	var read Order
	check(reader.DeserializeInto("avro", must(writer.Serialize("avro", &Order{"7", 9.5})), &read))
	equal(read, Order{"7", 9.5})
}

func json(client schemaregistry.Client) {
	writer := must(jsonschema.NewSerializer(client, serde.ValueSerde, jsonschema.NewSerializerConfig()))
	reader := must(jsonschema.NewDeserializer(client, serde.ValueSerde, jsonschema.NewDeserializerConfig()))
	var read Order
	check(reader.DeserializeInto("json", must(writer.Serialize("json", &Order{"7", 9.5})), &read))
	equal(read, Order{"7", 9.5})
}

func protocolBuffers(client schemaregistry.Client) {
	writer := must(protobuf.NewSerializer(client, serde.ValueSerde, protobuf.NewSerializerConfig()))
	reader := must(protobuf.NewDeserializer(client, serde.ValueSerde, protobuf.NewDeserializerConfig()))
	reader.ProtoRegistry = protoregistry.GlobalTypes
	read := must(reader.Deserialize("proto", must(writer.Serialize("proto", durationpb.New(7)))))
	if !proto.Equal(read.(proto.Message), durationpb.New(7)) {
		panic(read)
	}
}

// The client of franz-go, which has no serializers of its own: references, levels, deletes, errors.
func franz(url string) {
	ctx := context.Background()
	client := must(sr.NewClient(sr.URLs(url)))
	place := sr.Schema{Schema: `{"type":"record","name":"Place","fields":[{"name":"street","type":"string"}]}`}
	named := must(client.CreateSchema(ctx, "places", place))
	home := sr.Schema{
		Schema:     `{"type":"record","name":"Home","fields":[{"name":"place","type":"Place"}]}`,
		References: []sr.SchemaReference{{Name: "Place", Subject: "places", Version: named.Version}},
	}
	made := must(client.CreateSchema(ctx, "homes", home))
	equal(must(client.SchemaByID(ctx, made.ID)).References, home.References)
	equal(must(client.LookupSchema(ctx, "homes", home)).Version, 1)
	equal(len(must(client.SchemaReferences(ctx, "places", 1))), 1)
	if _, err := client.DeleteSubject(ctx, "places", sr.SoftDelete); err == nil {
		panic("a schema that another one refers to was deleted")
	}
	for _, each := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, "homes") {
		check(each.Err)
	}
	checked := must(client.CheckCompatibility(ctx, "homes", -1, sr.Schema{Schema: `"string"`}))
	equal(checked.Is, false)
	equal(must(client.DeleteSubject(ctx, "homes", sr.SoftDelete)), []int{1})
	equal(must(client.DeleteSubject(ctx, "homes", sr.HardDelete)), []int{1})
}

func main() {
	client := must(schemaregistry.NewClient(schemaregistry.NewConfig(os.Args[1])))
	types := map[string]func(schemaregistry.Client){"AVRO": avro, "JSON": json, "PROTOBUF": protocolBuffers}
	for _, name := range os.Args[2:] {
		types[name](client)
	}
	franz(os.Args[1])
}
