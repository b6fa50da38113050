"""An OTLP/gRPC receiver of logs, made of OpenTelemetry's published protos (PyPI opentelemetry-proto) and PyPI's grpcio.

deploy/install-deps.sh --tests installs both."""

import concurrent.futures
import threading
import unittest

from grpc_peer import grpc

try:
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
except ImportError:
    logs_service_pb2 = None


def needs_protos(test):
    return unittest.skipIf(grpc is None or logs_service_pb2 is None,
                           "opentelemetry-proto is not installed: deploy/install-deps.sh --tests does")(test)


def plain(value):
    """What an AnyValue holds."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes(pairs):
    return {pair.key: plain(pair.value) for pair in pairs}


class Record:
    def __init__(self, resource, scope, record):
        self.resource = attributes(resource.attributes)
        self.scope = scope.name
        self.event = record.event_name
        self.severity = record.severity_number
        self.body = plain(record.body)
        self.time_ns = record.time_unix_nano
        self.time_s = record.time_unix_nano / 1e9
        self.attributes = attributes(record.attributes)


class Receiver:
    """Serves until close(); `answer`, if it is set, is called with the context before each request is taken."""

    def __init__(self, address, credentials=None):
        self.records = []
        self.raw = []  # requests as bytes
        self.metadata = {}
        self.answer = None
        self.changed = threading.Condition()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(self, self.server)
        if credentials:
            self.port = self.server.add_secure_port(address, credentials)
        else:
            self.port = self.server.add_insecure_port(address)
        self.server.start()

    def Export(self, request, context):
        if self.answer:
            self.answer(context)
        with self.changed:
            self.raw.append(request.SerializeToString())
            self.metadata = dict(context.invocation_metadata())
            for logs in request.resource_logs:
                for scope in logs.scope_logs:
                    self.records += [Record(logs.resource, scope.scope, record) for record in scope.log_records]
            self.changed.notify_all()
        return logs_service_pb2.ExportLogsServiceResponse()

    def expect(self, count, limit_s=60):
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.records) >= count, limit_s):
                raise AssertionError(f"not within {limit_s} s: {count} records; there are {len(self.records)}")
            return list(self.records)

    def close(self):
        self.server.stop(None).wait()
