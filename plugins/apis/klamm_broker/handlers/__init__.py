"""One module per API, named after its key. Its docstring has versions, behaviour and deviations.

Handlers run on processor threads and request handler threads concurrently.
"""
