"""Time, threads and waiting: clock, scheduler, workers, purgatory, rates."""
