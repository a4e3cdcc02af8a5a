"""A bare client of TensorFlow's MasterService: no Python graph checks, no retries, every field under control.

The TensorFlow wheel ships no module for master.proto, so its messages are declared here (field numbers are the
protocol's).
"""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import device_attributes_pb2, graph_pb2, tensor_pb2  # noqa: F401  registered below
from tensorflow.core.protobuf import config_pb2, error_codes_pb2, named_tensor_pb2  # noqa: F401

_PACKAGE = "tensorflow"
_MESSAGES = {
    "CreateSessionRequest": "graph_def:1:GraphDef config:2:ConfigProto target:3:string",
    "CreateSessionResponse": "session_handle:1:string graph_version:2:int64",
    "ExtendSessionRequest": "session_handle:1:string graph_def:2:GraphDef current_graph_version:3:int64",
    "ExtendSessionResponse": "new_graph_version:4:int64",
    "RunStepRequest": "session_handle:1:string feed:2:NamedTensorProto* fetch:3:string* target:4:string* "
    "options:5:RunOptions partial_run_handle:6:string store_errors_in_response_body:7:bool request_id:8:int64",
    "RunStepResponse": "tensor:1:NamedTensorProto* metadata:2:RunMetadata status_code:3:int32 "
    "status_error_message:4:string",
    "CloseSessionRequest": "session_handle:1:string",
    "CloseSessionResponse": "",
    "ResetRequest": "container:1:string* device_filters:2:string*",
    "ResetResponse": "",
    "ListDevicesRequest": "session_handle:1:string",
    "ListDevicesResponse": "local_device:1:DeviceAttributes* remote_device:2:DeviceAttributes*",
}
_SCALARS = {"string": 9, "int64": 3, "int32": 5, "bool": 8}


def _declare():
    """Message classes for _MESSAGES, in a pool of their own that also holds the wheel's descriptors."""
    pool = descriptor_pool.DescriptorPool()
    imports = [
        module.DESCRIPTOR for module in (graph_pb2, config_pb2, named_tensor_pb2, device_attributes_pb2)
    ]

    def add(file):
        try:
            pool.FindFileByName(file.name)
        except KeyError:
            for dependency in file.dependencies:
                add(dependency)
            pool.AddSerializedFile(file.serialized_pb)

    for file in imports:
        add(file)
    file = descriptor_pb2.FileDescriptorProto(
        name="graphmill_tests/master.proto", package=_PACKAGE, syntax="proto3", dependency=[f.name for f in imports]
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for spec in fields.split():
            field, number, kind = spec.split(":")
            label = 3 if kind.endswith("*") else 1
            kind = kind.rstrip("*")
            entry = message.field.add(name=field, number=int(number), label=label)
            if kind in _SCALARS:
                entry.type = _SCALARS[kind]
            else:
                entry.type, entry.type_name = 11, f".{_PACKAGE}.{kind}"
    pool.AddSerializedFile(file.SerializeToString())
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


MESSAGES = _declare()
CODE_NAMES = dict((number, name) for name, number in error_codes_pb2.Code.items())


class MasterError(Exception):
    """An error answer of the master. `code` is the number of the status, `text` its message."""

    def __init__(self, code, text):
        super().__init__(f"{CODE_NAMES.get(code, code)}: {text}")
        self.code, self.text = code, text


class Master:
    """Calls on the MasterService at `address`. Every method raises MasterError for an error status."""

    def __init__(self, address, timeout=60):
        self.channel = grpc.insecure_channel(
            address,
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
        )
        self.timeout = timeout
        self.stubs = {}

    def call(self, method, request=None, timeout=None, **fields):
        """One unary call; `request` is a message, bytes, or None to make one from `fields`."""
        if request is None:
            request = MESSAGES[method + "Request"](**fields)
        payload = request if isinstance(request, bytes) else request.SerializeToString()
        stub = self.stubs.get(method)
        if stub is None:
            response = MESSAGES[method + "Response"]
            stub = self.channel.unary_unary(
                f"/tensorflow.MasterService/{method}", response_deserializer=response.FromString
            )
            self.stubs[method] = stub
        try:
            return stub(payload, timeout=timeout or self.timeout)
        except grpc.RpcError as error:
            raise MasterError(error.code().value[0], error.details()) from None

    def create_session(self, graph, config=None):
        """`graph` is a GraphDef. Returns the session handle."""
        request = MESSAGES["CreateSessionRequest"]()
        request.graph_def.ParseFromString(graph.SerializeToString())
        if config is not None:
            request.config.ParseFromString(config.SerializeToString())
        return self.call("CreateSession", request).session_handle

    def run_step(self, handle, feeds=(), fetches=(), targets=(), errors_in_body=True, timeout_ms=0, **fields):
        """`feeds` are pairs of a name and a TensorProto. Returns a dictionary of TensorProtos by fetch name."""
        request = MESSAGES["RunStepRequest"](
            session_handle=handle,
            fetch=fetches,
            target=targets,
            store_errors_in_response_body=errors_in_body,
            **fields,
        )
        if timeout_ms:
            request.options.timeout_in_ms = timeout_ms
        for name, tensor in feeds:
            feed = request.feed.add(name=name)
            feed.tensor.ParseFromString(tensor.SerializeToString())
        response = self.call("RunStep", request)
        if response.status_code:
            raise MasterError(response.status_code, response.status_error_message)
        return {named.name: named.tensor for named in response.tensor}

    def close_session(self, handle):
        self.call("CloseSession", session_handle=handle)

    def close(self):
        self.channel.close()
