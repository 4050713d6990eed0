"""Resources and changes of a request, from its decoded request and response. No input or output."""
