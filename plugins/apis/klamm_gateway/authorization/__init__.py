"""Authorization of requests to the cluster by a listener's authorizer; it follows the checks of Kafka's `KafkaApis`."""
