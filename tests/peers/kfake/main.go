// kfake as a server: one broker on a given port of the loopback address, topics created on demand. Records are kept in
// memory, or in a folder as well.
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port := flag.Int("port", 9092, "port of the broker")
	partitions := flag.Int("partitions", 1, "partitions of a topic that is created on demand")
	folder := flag.String("datadir", "", "folder that keeps the records")
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	options := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.Ports(*port),
		kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(*partitions),
	}
	if *folder != "" {
		options = append(options, kfake.DataDir(*folder))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		log.Fatal(err)
	}
	<-stop
	cluster.Close()
}
