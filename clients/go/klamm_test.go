package klamm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRecords(t *testing.T) {
	kafka := Shared(t)
	topic := kafka.CreateTopic(TopicOptions{Partitions: 2, Configs: map[string]any{"retention.ms": 1000}})
	headers := []Header{{"trace", []byte{0xff}}, {"none", nil}}
	if offset := kafka.Produce(topic, ProduceOptions{Key: []byte("k"), Headers: headers}, []byte("one"), nil); offset != 0 {
		t.Fatal(offset)
	}
	records := kafka.Consume(topic, ConsumeOptions{Count: 2})
	if len(records) != 2 || string(records[0].Value) != "one" || records[1].Value != nil || string(records[0].Key) != "k" {
		t.Fatal(records)
	}
	if !reflect.DeepEqual(records[0].Headers, headers) {
		t.Fatal(records[0].Headers)
	}
	if left := kafka.Consume(topic, ConsumeOptions{Partition: Ptr(0), Offset: Ptr(int64(2))}); len(left) != 0 {
		t.Fatal(left)
	}
	if kafka.Topics()[topic] != 2 {
		t.Fatal(kafka.Topics())
	}
	kafka.DeleteTopic(topic)
}

func TestErrorsHaveStatusAndName(t *testing.T) {
	kafka := Shared(t)
	var refused *Error
	err := kafka.Call("POST", "/topics", TopicOptions{Name: "a b"}, nil)
	if !errors.As(err, &refused) || refused.Status != 409 || refused.Name != "INVALID_TOPIC_EXCEPTION" {
		t.Fatal(err)
	}
	err = kafka.Call("GET", "/faults/none", nil, nil)
	if !errors.As(err, &refused) || refused.Status != 404 || err.Error() != `klamm: there is no fault "none"` {
		t.Fatal(err)
	}
}

func TestFaultsEndWithTheirTest(t *testing.T) {
	kafka := Shared(t)
	t.Run("adds", func(t *testing.T) {
		fault := Shared(t).AddFault(FaultRule{Kind: "delay", API: []string{"Fetch"}, DelayMs: 5, Probability: Ptr(0.5)})
		if found := kafka.Fault(fault.Name); found.Fired != 0 || found.Kind != "delay" {
			t.Fatal(found)
		}
	})
	if left := kafka.Faults(); len(left) != 0 {
		t.Fatal(left)
	}
}

func TestNodesAndTime(t *testing.T) {
	kafka := Start(t, Nodes(2), Set("num.partitions=3"))
	if brokers := strings.Split(kafka.Bootstrap, ","); len(brokers) != 2 {
		t.Fatal(brokers)
	}
	topic := kafka.CreateTopic()
	leader := kafka.Leaders(topic)[0]
	nodes := kafka.SetNode(leader, false)
	if nodes[leader-1].Running {
		t.Fatal(nodes)
	}
	kafka.SetNode(leader, true)
	if found := kafka.MoveLeader(topic, 0, Ptr(3-leader)); found[0] != 3-leader {
		t.Fatal(found)
	}
	if found := kafka.MoveCoordinator("readers", 2); found.Node != 2 {
		t.Fatal(found)
	}
	before := time.Now().UnixMilli()
	if after := kafka.AdvanceMs(3_600_000); after.WallMs < before+3_600_000 {
		t.Fatal(after)
	}
}

func TestUsers(t *testing.T) {
	kafka := Start(t, Secure())
	kafka.AddUser(User{Name: "alice"})
	kafka.Allow(AccessRule{User: "alice", Operation: "READ", ResourceType: "TOPIC", Name: "orders"})
	if rules := kafka.Acls("alice"); len(rules) != 1 || rules[0].Principal != "User:alice" {
		t.Fatal(rules)
	}
	settings := kafka.Settings("alice")
	if settings.Username != "alice" || settings.Password != "secret" || settings.Mechanism != "SCRAM-SHA-512" {
		t.Fatal(settings)
	}
	if settings.Brokers[0] != kafka.Bootstrap || kafka.Bootstrap != kafka.Listeners["secure"] {
		t.Fatal(settings, kafka.Bootstrap)
	}
	if _, err := settings.TLS(); err != nil {
		t.Fatal(err)
	}
}

// Records what a test says.
type failing struct {
	testing.TB
	failed   bool
	said     string
	cleanups []func()
}

func (f *failing) Helper()                        {}
func (f *failing) Name() string                   { return "Test/failing" }
func (f *failing) Failed() bool                   { return f.failed }
func (f *failing) Cleanup(clean func())           { f.cleanups = append(f.cleanups, clean) }
func (f *failing) Logf(format string, all ...any) { f.said += fmt.Sprintf(format, all...) }
func (f *failing) Fatal(all ...any) {
	f.failed = true
	f.said += fmt.Sprint(all...)
	panic(f)
}

func TestAFailingTestHasATimeline(t *testing.T) {
	kafka := Start(t, Nodes(2))
	t.Setenv("KLAMM_TIMELINE", t.TempDir())
	test := &failing{TB: t}
	func() {
		defer func() { _ = recover() }()
		kafka.For(test).SetNode(2, false)
		kafka.For(test).Fault("none")
	}()
	for _, clean := range test.cleanups {
		clean()
	}
	if !strings.Contains(test.said, `there is no fault "none"`) || !strings.Contains(test.said, "node 2 stopped") {
		t.Fatal(test.said)
	}
	page, err := os.ReadFile(filepath.Join(os.Getenv("KLAMM_TIMELINE"), "Test-failing.html"))
	if err != nil || !strings.Contains(string(page), "node 2 stopped") {
		t.Fatal(err)
	}
}

func TestABrokerThatDoesNotStartSaysWhy(t *testing.T) {
	_, err := Open(Set("num.partitons=3"))
	if err == nil || !strings.Contains(err.Error(), `did you mean "num.partitions"?`) {
		t.Fatal(err)
	}
	if _, err := Open(Command("no-such-command")); err == nil {
		t.Fatal("it started")
	}
}

func TestTheCommandIsTheFirstThatIsThere(t *testing.T) {
	for there, expected := range map[string]string{
		"klamm":   "klamm",
		"uvx":     "uvx --from klamm==" + Version + " klamm",
		"pipx":    "pipx run --spec klamm==" + Version + " klamm",
		"python3": "python3 -m klamm",
	} {
		words, err := findCommand("", func(name string) (string, error) {
			if name == there {
				return name, nil
			}
			return "", os.ErrNotExist
		})
		if err != nil || strings.Join(words, " ") != expected {
			t.Fatal(words, err)
		}
	}
	if words, _ := findCommand("/opt/klamm -x", nil); len(words) != 2 {
		t.Fatal(words)
	}
	if _, err := findCommand(" ", func(string) (string, error) { return "", os.ErrNotExist }); err == nil {
		t.Fatal("it was found")
	}
}

// Each operation of the API has a method, and each member of a schema that a type of this package stands for has a field.
func TestEachOperationHasAMethod(t *testing.T) {
	kafka := Shared(t)
	if found := kafka.About().Version; found != Version {
		t.Fatalf("klamm is %s, this package %s", found, Version)
	}
	description := kafka.Openapi()
	client := reflect.TypeOf(kafka.Client)
	count := 0
	for path, methods := range description["paths"].(map[string]any) {
		for method, operation := range methods.(map[string]any) {
			id := operation.(map[string]any)["operationId"].(string)
			if _, found := client.MethodByName(strings.ToUpper(id[:1]) + id[1:]); !found {
				t.Errorf("%s %s: there is no method for %s", method, path, id)
			}
			count++
		}
	}
	if count < 30 {
		t.Fatal(count)
	}
	schemas := description["components"].(map[string]any)["schemas"].(map[string]any)
	for _, value := range []any{
		About{}, WallTime{}, ConsumedRecord{}, Group{}, GroupMember{}, AssignedPartition{}, GroupPartition{}, FaultRule{},
		AccessRule{}, Fault{}, Node{}, Coordinator{}, RecordedRequest{}, Timeline{}, User{}, Acl{},
	} {
		kind := reflect.TypeOf(value)
		fields := map[string]bool{}
		for i := 0; i < kind.NumField(); i++ {
			name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			fields[name] = true
		}
		described := map[string]bool{}
		for name := range schemas[kind.Name()].(map[string]any)["properties"].(map[string]any) {
			described[name] = true
		}
		if !reflect.DeepEqual(fields, described) {
			t.Errorf("%s has %v, not %v", kind.Name(), fields, described)
		}
	}
	options := map[string]any{
		"createTopic": TopicOptions{}, "group": GroupOptions{}, "fault": FaultOptions{}, "chaos": ChaosOptions{},
		"requests": RequestsOptions{}, "timeline": TimelineOptions{},
	}
	for path, methods := range description["paths"].(map[string]any) {
		for _, found := range methods.(map[string]any) {
			operation := found.(map[string]any)
			value, there := options[operation["operationId"].(string)]
			if !there {
				continue
			}
			kind := reflect.TypeOf(value)
			for i := 0; i < kind.NumField(); i++ {
				name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
				if !strings.Contains(fmt.Sprint(operation["parameters"], operation["requestBody"]), name) {
					t.Errorf("%s takes no %s", path, name)
				}
			}
		}
	}
}
