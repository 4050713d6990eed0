"""The lake: a Delta table of events with the seals that prove it. The commands of `klamm audit` write and read it."""
