"""One module per API, named after its key. Its head says versions, behaviour and deviations."""
