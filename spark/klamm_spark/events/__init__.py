"""Events of the audit: their fields, the order of fields in a line, and other formats for them.

All of it derives from the JSON Schema in `schema/`.
"""
