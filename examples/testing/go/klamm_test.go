package klamm

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var server *Server

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "klamm-")
	if err != nil {
		panic(err)
	}
	if server, err = Start(folder); err != nil {
		panic(err)
	}
	code := m.Run()
	server.Stop()
	os.RemoveAll(folder)
	os.Exit(code)
}

func newTopic(t *testing.T) string {
	var made struct{ Name string }
	if err := server.Call("POST", "/topics", map[string]any{"partitions": 1}, &made); err != nil {
		t.Fatal(err)
	}
	return made.Name
}

func produce(t *testing.T, topic, value string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(server.Bootstrap), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func values(t *testing.T, topic string) []string {
	var records []struct{ Value string }
	if err := server.Call("GET", "/topics/"+topic+"/records", nil, &records); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, record := range records {
		found = append(found, record.Value)
	}
	return found
}

func TestRecordsGoInAndComeOut(t *testing.T) {
	topic := newTopic(t)
	produce(t, topic, "order 1")
	if found := values(t, topic); len(found) != 1 || found[0] != "order 1" {
		t.Fatal(found)
	}
}

func TestAnIdempotentProducerSurvivesALostAnswer(t *testing.T) {
	topic := newTopic(t)
	rule := map[string]any{"kind": "disconnect_after", "api": "Produce", "topic": topic, "count": 1, "name": topic}
	if err := server.Call("POST", "/faults", rule, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, topic, "order 2")
	var fault struct{ Fired int }
	if err := server.Call("GET", "/faults/"+topic+"?wait=1", nil, &fault); err != nil || fault.Fired != 1 {
		t.Fatal(err, fault)
	}
	if found := values(t, topic); len(found) != 1 {
		t.Fatal(found)
	}
}
