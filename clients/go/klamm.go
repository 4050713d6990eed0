// Package klamm runs a Kafka broker for tests.
//
//	func TestOrders(t *testing.T) {
//		kafka := klamm.Start(t)
//		topic := kafka.CreateTopic()
//		placeOrder(kafka.Bootstrap, topic) // the code under test
//		if records := kafka.Consume(topic); len(records) != 1 {
//			t.Fatal(records)
//		}
//	}
//
// The methods have the names of the operations of klamm's control API. An error fails the test that the server is bound
// to; of a server of [Open] it is a panic. [Client.Call] returns it.
package klamm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Version is the version of klamm that this package is part of, and that uvx and pipx install.
const Version = "0.1.0"

const (
	startTimeout = 120 * time.Second
	stopTimeout  = 20 * time.Second
	keptOutput   = 16 << 10
)

// An Option changes what a server is.
type Option func(*config)

type config struct {
	command []string
	words   []string
}

// Set has settings of the broker, "KEY=VALUE", as for klamm serve --set.
func Set(settings ...string) Option {
	return func(c *config) {
		for _, one := range settings {
			c.words = append(c.words, "--set", one)
		}
	}
}

// Nodes makes the broker several nodes.
func Nodes(count int) Option { return Set(fmt.Sprintf("nodes=%d", count)) }

// Secure has clients connect with TLS and SCRAM, and adds access control lists. See [Server.Settings].
func Secure() Option { return func(c *config) { c.words = append(c.words, "--secure") } }

// Command is how to run klamm, e.g. "python3", "-m", "klamm". Without it that is the variable KLAMM, or the first of
// klamm, uvx, pipx and python3 that is there.
func Command(words ...string) Option { return func(c *config) { c.command = words } }

// Server is a broker in a process of its own. It ends with this process at the latest.
type Server struct {
	*Client
	// Bootstrap is the address that clients start from: that of the listener with TLS, if there is one.
	Bootstrap string
	// Listeners has the address of each listener by its name.
	Listeners map[string]string

	process *process
}

type process struct {
	command *exec.Cmd
	input   io.Closer
	ended   chan struct{}
	folder  string
	output  *tail
	// Tests that are bound to it and have not ended.
	bound atomic.Int32
}

// Start starts a broker for one test, and stops it at its end.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	server, err := Open(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server.For(t)
}

var (
	sharedOnce sync.Once
	shared     *Server
	errShared  error
)

// Shared returns a broker that the tests of this process share. The options are those of its first caller.
func Shared(t testing.TB, options ...Option) *Server {
	t.Helper()
	sharedOnce.Do(func() { shared, errShared = Open(options...) })
	if errShared != nil {
		t.Fatal(errShared)
	}
	return shared.For(t)
}

// Open starts a broker without a test, e.g. in TestMain. [Server.For] binds it to a test.
func Open(options ...Option) (*Server, error) {
	chosen := config{}
	for _, option := range options {
		option(&chosen)
	}
	words := chosen.command
	if len(words) == 0 {
		var err error
		if words, err = findCommand(os.Getenv("KLAMM"), exec.LookPath); err != nil {
			return nil, err
		}
	}
	folder, err := os.MkdirTemp("", "klamm-")
	if err != nil {
		return nil, err
	}
	ready := filepath.Join(folder, "ready.json")
	words = append(append([]string{}, words...), "serve", "--ephemeral", "--stop-at-eof", "--ready-file", ready)
	running, err := run(append(words, chosen.words...), folder)
	if err != nil {
		os.RemoveAll(folder)
		return nil, err
	}
	server := &Server{process: running}
	if err := server.waitUntilReady(ready); err != nil {
		_ = server.Close()
		return nil, err
	}
	return server, nil
}

func findCommand(named string, look func(string) (string, error)) ([]string, error) {
	if words := strings.Fields(named); len(words) > 0 {
		return words, nil
	}
	for _, words := range [][]string{
		{"klamm"},
		{"uvx", "--from", "klamm==" + Version, "klamm"},
		{"pipx", "run", "--spec", "klamm==" + Version, "klamm"},
		{"python3", "-m", "klamm"},
		{"python", "-m", "klamm"},
	} {
		if _, err := look(words[0]); err == nil {
			return words, nil
		}
	}
	return nil, errors.New("klamm: there is no klamm, uvx, pipx or python3; set the variable KLAMM to the command of klamm")
}

func run(words []string, folder string) (*process, error) {
	command := exec.Command(words[0], words[1:]...)
	// It stops when its standard input ends, whatever ends this process.
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output := &tail{}
	command.Stderr = output
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("klamm: %w", err)
	}
	running := &process{command: command, input: input, ended: make(chan struct{}), folder: folder, output: output}
	go func() {
		_ = command.Wait()
		close(running.ended)
	}()
	return running, nil
}

func (s *Server) waitUntilReady(ready string) error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		content, err := os.ReadFile(ready)
		if err == nil {
			var found struct {
				Bootstrap, Control, Token string
				Listeners                 map[string]string
			}
			if err := json.Unmarshal(content, &found); err != nil {
				return fmt.Errorf("klamm: %s: %w", ready, err)
			}
			s.Client = NewClient(found.Control, found.Token)
			s.Bootstrap, s.Listeners = found.Bootstrap, found.Listeners
			return nil
		}
		select {
		case <-s.process.ended:
			return fmt.Errorf("klamm: the broker does not start: %s", s.process.output)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("klamm: the broker does not start within %s: %s", startTimeout, s.process.output)
}

// For binds the server to a test: an error fails it, its faults end with it, and if it fails its log has the timeline of
// the broker.
func (s *Server) For(t testing.TB) *Server {
	t.Helper()
	bound := *s
	bound.Client = &Client{url: s.url, token: s.token, http: s.http, t: t, faults: new([]string)}
	if s.process.bound.Add(1) == 1 {
		bound.ForgetRequests()
	}
	t.Cleanup(func() {
		defer s.process.bound.Add(-1)
		if t.Failed() {
			bound.report(t)
		}
		for _, name := range *bound.faults {
			_ = bound.Call("DELETE", path("faults", name), nil, nil)
		}
	})
	return &bound
}

func (s *Server) report(t testing.TB) {
	var found Timeline
	query := map[string]any{"title": t.Name(), "failure": "the test failed"}
	if err := s.Call("GET", "/timeline", query, &found); err != nil || found.Text == "" {
		return
	}
	folder := os.Getenv("KLAMM_TIMELINE")
	if folder == "" {
		folder = filepath.Join(os.TempDir(), "klamm-timeline")
	}
	page := filepath.Join(folder, strings.Map(inFileName, t.Name())+".html")
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = os.WriteFile(page, []byte(found.HTML), 0o600)
	}
	if err != nil {
		page = "its page cannot be written: " + err.Error()
	}
	t.Logf("klamm: timeline\n%s\n%s", found.Text, page)
}

func inFileName(letter rune) rune {
	if strings.ContainsRune("._-", letter) || letter < 128 && (letter >= '0' && letter <= '9' ||
		letter >= 'A' && letter <= 'Z' || letter >= 'a' && letter <= 'z') {
		return letter
	}
	return '-'
}

// Close stops the broker.
func (s *Server) Close() error {
	defer os.RemoveAll(s.process.folder)
	_ = s.process.input.Close()
	select {
	case <-s.process.ended:
		return nil
	case <-time.After(stopTimeout):
		_ = s.process.command.Process.Kill()
		<-s.process.ended
		return errors.New("klamm: the broker did not stop, and was killed")
	}
}

// The end of what a process writes.
type tail struct {
	lock sync.Mutex
	kept []byte
}

func (t *tail) Write(content []byte) (int, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.kept = append(t.kept, content...)
	if len(t.kept) > keptOutput {
		t.kept = t.kept[len(t.kept)-keptOutput:]
	}
	return len(content), nil
}

func (t *tail) String() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	return strings.TrimSpace(string(t.kept))
}
