package kafka

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
)

func run(t *testing.T, options ...testcontainers.ContainerCustomizer) *KafkaContainer {
	t.Helper()
	kafka, err := Run(context.Background(), "confluentinc/confluent-local:7.5.0", options...)
	testcontainers.CleanupContainer(t, kafka)
	if err != nil {
		t.Fatal(err)
	}
	return kafka
}

func TestTheAddressIsThatOfTheBroker(t *testing.T) {
	ctx := context.Background()
	kafka := run(t, WithClusterID("abc"))
	brokers, err := kafka.Brokers(ctx)
	if err != nil || !reflect.DeepEqual(brokers, []string{kafka.Klamm.Bootstrap}) || kafka.ClusterID != "abc" {
		t.Fatal(brokers, err, kafka.ClusterID)
	}
	host, err := kafka.Host(ctx)
	if err != nil {
		t.Fatal(err)
	}
	port, err := kafka.MappedPort(ctx, "9093/tcp")
	if err != nil || net.JoinHostPort(host, port.Port()) != brokers[0] || port.Proto() != "tcp" {
		t.Fatal(host, port, err)
	}
	if endpoint, err := kafka.PortEndpoint(ctx, "9093/tcp", "PLAINTEXT"); endpoint != "PLAINTEXT://"+brokers[0] {
		t.Fatal(endpoint, err)
	}
	if !strings.HasPrefix(kafka.GetContainerID(), "klamm-") {
		t.Fatal(kafka.GetContainerID())
	}
}

func TestVariablesAreSettings(t *testing.T) {
	environment := map[string]string{"KAFKA_NUM_PARTITIONS": "3", "KAFKA_A__B___C_D": "x=y", "HOME": "/"}
	if found := settings(environment); !reflect.DeepEqual(found, []string{"a_b-c.d=x=y", "num.partitions=3"}) {
		t.Fatal(found)
	}
	kafka := run(t, testcontainers.WithEnv(map[string]string{"KAFKA_NODE_ID": "7"})).Klamm.For(t)
	if nodes := kafka.Nodes(); nodes[0].ID != 7 {
		t.Fatal(nodes)
	}
}

func TestItEndsOnce(t *testing.T) {
	ctx := context.Background()
	kafka := run(t)
	if state, err := kafka.State(ctx); err != nil || !state.Running || state.Status != "running" {
		t.Fatal(state, err)
	}
	for range 2 {
		if err := kafka.Terminate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if state, err := kafka.State(ctx); err != nil || state.Running || kafka.IsRunning() {
		t.Fatal(state, err)
	}
	var unreachable net.Error
	if _, err := net.Dial("tcp", kafka.Klamm.Bootstrap); !errors.As(err, &unreachable) {
		t.Fatal(err)
	}
}

func TestWhatNeedsAContainerIsAnError(t *testing.T) {
	ctx := context.Background()
	networked := testcontainers.CustomizeRequestOption(func(request *testcontainers.GenericContainerRequest) error {
		request.Networks = []string{"mine"}
		return nil
	})
	unknown := testcontainers.WithEnv(map[string]string{"KAFKA_NUM_PARTITION": "3"})
	for option, said := range map[testcontainers.ContainerCustomizer]string{&networked: "no networks", &unknown: "num.partitions"} {
		if kafka, err := Run(ctx, "", option); err == nil || !strings.Contains(err.Error(), said) || kafka != nil {
			t.Fatal(kafka, err)
		}
	}
	if _, _, err := run(t).Exec(ctx, []string{"ls"}); !errors.Is(err, errNoContainer) {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Run(over, ""); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
