"""The filter `topic_prefix`: gives each tenant of a shared cluster its own topics, groups and transactional ids."""
