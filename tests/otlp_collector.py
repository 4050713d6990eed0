"""`Collector`: receives traces and metrics by OTLP over HTTP, and parses them with OpenTelemetry's own messages."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_S = 60


class Collector:
    """A collector that keeps all exports. It does not answer while `go_on` is cleared."""

    def __init__(self):
        self.bodies = []
        self.status = 200
        self.go_on = threading.Event()
        self.go_on.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.go_on.wait(PATIENCE_S)
                zipped = self.headers.get("Content-Encoding") == "gzip"
                collector.bodies.append((self.path, gzip.decompress(body) if zipped else body))
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self):
        """Return the spans of all exports."""
        found = []
        for path, body in self.bodies:
            assert path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                assert ("service.name", "klamm") in pairs(resource.resource.attributes)
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return found

    def metrics(self):
        """Return the metrics of the last export, by name."""
        path, body = self.bodies[-1]
        assert path == "/v1/metrics"
        (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
        return {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}

    def close(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


def pairs(attributes):
    return [(each.key, getattr(each.value, each.value.WhichOneof("value"))) for each in attributes]
