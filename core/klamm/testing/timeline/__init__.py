"""`Timeline`: the requests of clients and the changes of a server, as text and as an HTML page."""
