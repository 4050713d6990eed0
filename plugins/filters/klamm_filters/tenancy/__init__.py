"""The filter `topic_prefix`: topics, groups and transactional ids of their own for tenants that share a cluster."""
