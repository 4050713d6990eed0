"""What a request names and changes, from its decoded request and response. No input or output."""
