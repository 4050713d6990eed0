"""The same requests to klamm and to Apache Kafka, with the answers side by side.

comparison   sends a request to both, and makes answers comparable
data_cases   Produce, Fetch, ListOffsets, DeleteRecords, epochs, producers
admin_cases  topics, configs, quotas, users, ACLs, the cluster
"""
