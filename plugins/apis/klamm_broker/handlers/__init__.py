"""One module per API, named after its key. Its docstring has versions, behaviour, errors and deviations.

"CONDITION: ERROR_CODE" in a docstring means that the client gets this error if the condition is true. `served_apis.py`
registers the handlers, and says which of them run on the processor's thread; the others run on request handlers'
threads. Many calls run concurrently. "Raises KafkaError" means that the whole request fails with this error.
"""
