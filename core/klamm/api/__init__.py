"""The contracts that plugins implement, one module for each."""
