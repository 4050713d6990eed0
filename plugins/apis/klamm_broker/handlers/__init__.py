"""One module per API, named after its key. Its docstring has versions, behaviour, errors and deviations.

"CONDITION: ERROR_CODE" in a docstring means that the client gets this error if the condition is true. `served_apis.py`
registers the handlers, and chooses the thread that each docstring names. Large requests always run on other threads
than the processors'. Many calls run concurrently. "Raises KafkaError" means that the whole request fails with this
error.
"""
