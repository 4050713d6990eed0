package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"

	"klamm.example/klamm"
)

// Its deprecated methods are those of no container, and panic.
type broker[Port ~string, Mapped, State any] struct {
	testcontainers.Container
	server *klamm.Server
	ended  atomic.Bool
}

// The types of a port and of a state are others in other versions of testcontainers-go: those of the two methods.
func container[Port ~string, Mapped, State any](
	_ func(testcontainers.Container, context.Context, Port) (Mapped, error),
	_ func(testcontainers.Container, context.Context) (*State, error),
	server *klamm.Server,
) testcontainers.Container {
	return any(&broker[Port, Mapped, State]{server: server}).(testcontainers.Container)
}

func (b *broker[_, _, _]) GetContainerID() string { return "klamm-" + b.server.Bootstrap }
func (b *broker[_, _, _]) SessionID() string      { return "" }
func (b *broker[_, _, _]) IsRunning() bool        { return !b.ended.Load() }

func (b *broker[_, _, _]) Host(context.Context) (string, error) {
	host, _, err := net.SplitHostPort(b.server.Bootstrap)
	return host, err
}

// Whichever port of a container is asked for.
func (b *broker[Port, Mapped, _]) MappedPort(context.Context, Port) (mapped Mapped, err error) {
	_, port, err := net.SplitHostPort(b.server.Bootstrap)
	if err == nil {
		err = json.Unmarshal([]byte(`"`+port+`/tcp"`), &mapped)
	}
	return mapped, err
}

func (b *broker[_, _, _]) Endpoint(_ context.Context, protocol string) (string, error) {
	if protocol != "" {
		protocol += "://"
	}
	return protocol + b.server.Bootstrap, nil
}

func (b *broker[Port, _, _]) PortEndpoint(ctx context.Context, _ Port, protocol string) (string, error) {
	return b.Endpoint(ctx, protocol)
}

func (b *broker[_, _, State]) State(context.Context) (*State, error) {
	status := "exited"
	if b.IsRunning() {
		status = "running"
	}
	text, err := json.Marshal(map[string]any{"Status": status, "Running": b.IsRunning()})
	if err != nil {
		return nil, err
	}
	state := new(State)
	return state, json.Unmarshal(text, state)
}

func (b *broker[_, _, _]) Stop(context.Context, *time.Duration) error {
	if b.ended.Swap(true) {
		return nil
	}
	return b.server.Close()
}

func (b *broker[_, _, _]) Terminate(ctx context.Context, _ ...testcontainers.TerminateOption) error {
	return b.Stop(ctx, nil)
}

var errNoContainer = errors.New("klamm: the broker is no container, and cannot do this")

func (b *broker[_, _, _]) Start(context.Context) error                 { return errNoContainer }
func (b *broker[_, _, _]) Logs(context.Context) (io.ReadCloser, error) { return nil, errNoContainer }

func (b *broker[_, _, _]) Exec(context.Context, []string, ...exec.ProcessOption) (int, io.Reader, error) {
	return 0, nil, errNoContainer
}

func (b *broker[_, _, _]) ContainerIP(context.Context) (string, error)    { return "", errNoContainer }
func (b *broker[_, _, _]) ContainerIPs(context.Context) ([]string, error) { return nil, errNoContainer }
func (b *broker[_, _, _]) Networks(context.Context) ([]string, error)     { return nil, errNoContainer }

func (b *broker[_, _, _]) NetworkAliases(context.Context) (map[string][]string, error) {
	return nil, errNoContainer
}

func (b *broker[_, _, _]) CopyToContainer(context.Context, []byte, string, int64) error {
	return errNoContainer
}

func (b *broker[_, _, _]) CopyDirToContainer(context.Context, string, string, int64) error {
	return errNoContainer
}

func (b *broker[_, _, _]) CopyFileToContainer(context.Context, string, string, int64) error {
	return errNoContainer
}

func (b *broker[_, _, _]) CopyFileFromContainer(context.Context, string) (io.ReadCloser, error) {
	return nil, errNoContainer
}
