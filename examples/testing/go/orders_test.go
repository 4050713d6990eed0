// Tests of code that talks to Kafka, with franz-go and kafka-go.
package orders

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kgo"
	franz "github.com/twmb/franz-go/pkg/sasl/scram"
	"klamm.example/klamm"
)

// The code under test: it sends an order.
func placeOrder(t *testing.T, topic, order string, options ...kgo.Opt) {
	client, err := kgo.NewClient(append(options, kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, kgo.StringRecord(order)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestOrdersArrive(t *testing.T) {
	broker := klamm.Shared(t)
	topic := broker.CreateTopic()
	placeOrder(t, topic, "order 1", kgo.SeedBrokers(broker.Bootstrap))
	if records := broker.Consume(topic); len(records) != 1 || string(records[0].Value) != "order 1" {
		t.Fatal(records)
	}
}

func TestAnOrderArrivesOnceThoughItsAnswerIsLost(t *testing.T) {
	broker := klamm.Shared(t)
	topic := broker.CreateTopic()
	lost := broker.AddFault(klamm.FaultRule{Kind: "disconnect_after", API: []string{"Produce"}, Topic: topic, Count: 1})
	placeOrder(t, topic, "order 2", kgo.SeedBrokers(broker.Bootstrap))
	broker.Fault(lost.Name, klamm.FaultOptions{Wait: 1})
	if records := broker.Consume(topic); len(records) != 1 {
		t.Fatal(records)
	}
}

func TestClientsLogIn(t *testing.T) {
	broker := klamm.Start(t, klamm.Secure())
	topic := broker.CreateTopic()
	broker.AddUser(klamm.User{Name: "alice"})
	broker.Allow(klamm.AccessRule{User: "alice", Operation: "ALL", ResourceType: "TOPIC", Name: topic})
	broker.Allow(klamm.AccessRule{User: "alice", Operation: "IDEMPOTENT_WRITE", ResourceType: "CLUSTER", Name: "kafka-cluster"})
	settings := broker.Settings("alice")
	config, err := settings.TLS()
	if err != nil {
		t.Fatal(err)
	}
	placeOrder(t, topic, "franz-go", kgo.SeedBrokers(settings.Brokers...), kgo.DialTLSConfig(config),
		kgo.SASL(franz.Auth{User: settings.Username, Pass: settings.Password}.AsSha512Mechanism()))
	if order := readWithKafkaGo(t, topic, settings, config); order != "franz-go" {
		t.Fatal(order)
	}
}

func readWithKafkaGo(t *testing.T, topic string, settings klamm.Settings, config *tls.Config) string {
	mechanism, err := scram.Mechanism(scram.SHA512, settings.Username, settings.Password)
	if err != nil {
		t.Fatal(err)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: settings.Brokers,
		Topic:   topic,
		MaxWait: 100 * time.Millisecond,
		Dialer:  &kafka.Dialer{TLS: config, SASLMechanism: mechanism, Timeout: 10 * time.Second},
	})
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	message, err := reader.ReadMessage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(message.Value)
}
