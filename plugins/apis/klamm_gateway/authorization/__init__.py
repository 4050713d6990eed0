"""What a listener's authorizer lets through to the cluster; after the checks of Kafka's `KafkaApis`."""
