"""The report: its questions, as text and as HTML."""
