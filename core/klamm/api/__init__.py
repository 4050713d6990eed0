"""The contracts that plugins implement, one module for each.

Plugins import them from `klamm` and its other public namespaces. `docs/stability.md` says which changes are allowed.
"""
