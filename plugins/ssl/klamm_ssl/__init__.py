"""The transport `ssl`."""
