"""`Rest`: a client of the Schema Registry for tests."""

import http.client
import json
from urllib.parse import quote


class Rest:
    """A client. A call, e.g. `rest("GET", "/subjects")`, returns the status and the answer."""

    def __init__(self, url):
        self.host = url.removeprefix("http://")

    def __call__(self, method, path, body=None):
        status, content, _ = self.raw(method, path, None if body is None else json.dumps(body).encode())
        return status, json.loads(content)

    def raw(self, method, path, body=None, headers=None):
        """Send a request. Return the status, the body and the headers of the answer."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = answer.status, answer.read(), dict(answer.getheaders())
        connection.close()
        return found

    def register(self, subject, schema, query="", **more):
        """Register a schema, which is text or a JSON value. Return the answer."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self("POST", f"/subjects/{quote(subject, safe='')}/versions{query}", {"schema": text, **more})

    def codes(self, *requests):
        """Return the error code of each request; None if it succeeded."""
        return [self(*request)[1].get("error_code") for request in requests]
