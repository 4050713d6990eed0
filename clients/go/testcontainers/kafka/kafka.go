// Package kafka takes the place of github.com/testcontainers/testcontainers-go/modules/kafka: a test moves to klamm, and
// back, by the path that it imports. The rest of testcontainers-go stays as it is.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/testcontainers/testcontainers-go"

	"klamm.example/klamm"
)

const clusterID = "CLUSTER_ID"

// KafkaContainer is a broker in a process of its own.
type KafkaContainer struct {
	testcontainers.Container
	ClusterID string
	// Klamm has faults, waits and time. See [klamm.Server.For].
	Klamm *klamm.Server
}

// Run starts a broker. The image has no meaning. Of the options it takes the environment: KAFKA_NUM_PARTITIONS is the
// setting num.partitions, as in Kafka's images. What needs a container, e.g. a network, is an error.
func Run(ctx context.Context, image string, options ...testcontainers.ContainerCustomizer) (*KafkaContainer, error) {
	request := testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{Image: image, Env: map[string]string{}},
	}
	for _, option := range options {
		if err := option.Customize(&request); err != nil {
			return nil, err
		}
	}
	if len(request.Networks) > 0 || len(request.Files) > 0 {
		return nil, errors.New("klamm: a broker that is no container has no networks and no files")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	server, err := klamm.Open(klamm.Set(settings(request.Env)...))
	if err != nil {
		return nil, err
	}
	return &KafkaContainer{
		Container: container(testcontainers.Container.MappedPort, testcontainers.Container.State, server),
		ClusterID: request.Env[clusterID],
		Klamm:     server,
	}, nil
}

// RunContainer is [Run] with an image among the options.
func RunContainer(ctx context.Context, options ...testcontainers.ContainerCustomizer) (*KafkaContainer, error) {
	return Run(ctx, "", options...)
}

// WithClusterID sets [KafkaContainer.ClusterID]; clients see the broker's own.
func WithClusterID(id string) testcontainers.CustomizeRequestOption {
	return testcontainers.WithEnv(map[string]string{clusterID: id})
}

// Brokers returns the addresses that clients start from.
func (c *KafkaContainer) Brokers(context.Context) ([]string, error) {
	return strings.Split(c.Klamm.Bootstrap, ","), nil
}

// In the name of a variable three underscores are a dash, two are an underscore, and one is a dot.
var inSetting = strings.NewReplacer("___", "-", "__", "_", "_", ".")

func settings(environment map[string]string) []string {
	found := []string{}
	for name, value := range environment {
		if key, ours := strings.CutPrefix(name, "KAFKA_"); ours {
			found = append(found, fmt.Sprintf("%s=%s", strings.ToLower(inSetting.Replace(key)), value))
		}
	}
	slices.Sort(found)
	return found
}
