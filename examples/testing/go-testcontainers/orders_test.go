// A test as it is with Testcontainers, but for the path of the package kafka.
package orders

import (
	"context"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

import "klamm.example/klamm/testcontainers/kafka"

func TestAnOrderArrives(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	container, err := kafka.Run(ctx, "confluentinc/confluent-local:7.5.0", kafka.WithClusterID("orders"))
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	brokers, err := container.Brokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic("orders"),
		kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, kgo.StringRecord("order 1")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	records := client.PollFetches(ctx).Records()
	if len(records) != 1 || string(records[0].Value) != "order 1" {
		t.Fatal(records)
	}
}
