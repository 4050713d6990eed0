"""The command `klamm`. Each subcommand is a module that is imported only when it is asked for."""
