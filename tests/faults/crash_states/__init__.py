"""Every state that a crash may leave a data directory in, and whether the broker keeps its promises from there.

    recorded_disk   a file layer and a store that record what is done, and fail on request
    crashed_disk    what a recording leaves on the disk if it ends somewhere: killed, or without power
    workload        what the broker is asked to do meanwhile
    promises        what has to be there afterwards

The rules are those of `docs/durability.md`. SQLite is taken at its word: a commit is there or not, a synced one is.
"""
