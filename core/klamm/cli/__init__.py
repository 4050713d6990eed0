"""The command `klamm`. Each subcommand is a module, which is imported only when the subcommand is called."""
