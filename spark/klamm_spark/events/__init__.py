"""Events of the audit: their fields, the order of fields in a line, and other formats. The schema is the one input."""
