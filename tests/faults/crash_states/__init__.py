"""Every state in which a crash may leave a data directory, with checks that the broker then keeps its promises.

    recorded_disk   a file layer and a store that record all changes, and fail on request
    crashed_disk    the content of the disk if a recording ends at some place: killed, or without power
    workload        the requests to the broker meanwhile
    promises        the data that must exist afterwards

The rules are those of `docs/durability.md`. SQLite is trusted: a commit exists as a whole or not at all, and a synced
commit always exists.
"""
