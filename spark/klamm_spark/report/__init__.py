"""The report of `klamm audit report`: its questions, and its output as text and HTML."""
