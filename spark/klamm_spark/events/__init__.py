"""Events of the audit: their fields, the order of fields in a line, and other formats. No input or output."""
