"""What an event of the audit is: its fields, their order in a line, and other formats. No input or output."""
