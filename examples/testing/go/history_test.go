package orders

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"klamm.example/klamm"
)

const orders = 20

// A recorder writes what clients do and see to a history.
type recorder struct {
	t    *testing.T
	file *os.File
}

type event struct {
	Process string `json:"process"`
	Type    string `json:"type"`
	F       string `json:"f"`
	Value   any    `json:"value"`
}

// operation records work as one operation of a process. What fails has an unknown outcome.
func (r *recorder) operation(process, f string, value any, work func() (any, error)) {
	r.write(event{process, "invoke", f, value})
	result, err := work()
	if err != nil {
		r.write(event{process, "info", f, value})
		r.t.Fatal(err)
	}
	r.write(event{process, "ok", f, result})
}

func (r *recorder) write(one event) {
	if err := json.NewEncoder(r.file).Encode(one); err != nil {
		r.t.Fatal(err)
	}
}

func TestNoOrderIsLostOrDoubledThoughAnswersAreLost(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recorder := &recorder{t, file}
	broker := klamm.Shared(t)
	topic := broker.CreateTopic()
	broker.AddFault(klamm.FaultRule{Kind: "disconnect_after", API: []string{"Produce"}, Topic: topic, Count: 1})

	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Bootstrap), kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for order := range orders {
		recorder.operation("producer", "send", [][]any{{"send", topic, order}}, func() (any, error) {
			sent, err := client.ProduceSync(ctx, kgo.StringRecord(strconv.Itoa(order))).First()
			if err != nil {
				return nil, err
			}
			return [][]any{{"send", topic, order, sent.Offset}}, nil
		})
	}
	for read := 0; read < orders; {
		recorder.operation("consumer", "poll", [][]any{{"poll"}}, func() (any, error) {
			fetches := client.PollFetches(ctx)
			found := [][2]int64{}
			for _, record := range fetches.Records() {
				order, err := strconv.ParseInt(string(record.Value), 10, 64)
				if err != nil {
					return nil, err
				}
				found = append(found, [2]int64{record.Offset, order})
			}
			read += len(found)
			return [][]any{{"poll", map[string]any{topic: found}}}, fetches.Err()
		})
	}

	command := strings.Fields(os.Getenv("KLAMM"))
	if len(command) == 0 {
		command = []string{"klamm"}
	}
	command = append(command, "verify-history", file.Name())
	said, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil || !strings.Contains(string(said), " 0 anomalies") {
		t.Fatal(err, string(said))
	}
}
