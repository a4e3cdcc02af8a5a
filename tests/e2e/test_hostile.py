"""Messages that no honest client sends: nonsense tensors, edges to nowhere, functions that never end."""

import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, tensor_pb2
from tensorflow.core.protobuf import error_codes_pb2 as codes

from tests.master import MESSAGES, MasterError
from tests.oracle import dtypes
from tests.oracle.build import Builder

v1 = tf.compat.v1


def identity_graph(dtype="float"):
    b = Builder()
    fed = b.node("Placeholder", name="fed", dtype=dtype, shape=None)
    b.add("Identity", fed, name="out")
    return b.graph


def tensor(dtype, dims, content=b"", **fields):
    proto = tensor_pb2.TensorProto(tensor_content=content, **fields)
    for size in dims:
        proto.tensor_shape.dim.add(size=size)
    raw = proto.SerializeToString()
    number = dtype & ((1 << 64) - 1)
    varint = b""
    while number > 0x7F:
        varint += bytes([number & 0x7F | 0x80])
        number >>= 7
    return raw + b"\x08" + varint + bytes([number])  # field 1, past what the enum's own class would take


NONSENSE = {
    f"dtype {dtype}, shape {dims}": tensor(dtype, dims)
    for dtype in (0, 99, -1, 121, 1 << 20)
    for dims in ([0], [], [3])
}
NONSENSE |= {
    f"garbage of dtype {dtype}, shape {dims}": tensor(dtype, dims, b"\xff\x01garbage\x80")
    for dtype in (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum, tf.string.as_datatype_enum)
    for dims in ([], [3])
}
NONSENSE |= {
    "content too short": tensor(1, [3], b"\0" * 11),
    "content too long": tensor(1, [3], b"\0" * 13),
    "content for no element": tensor(1, [-1], b"\0" * 4),
    "negative size": tensor(1, [2, -3], b"\0" * 24),
    "size over 64 bits": tensor(1, [1 << 40, 1 << 40]),
    "size over memory": tensor(1, [1 << 50], b"\0\0\0\0"),
}


def step_with(handle, raw):
    """A RunStepRequest that feeds the bytes `raw` as the tensor of `fed:0`."""
    request = MESSAGES["RunStepRequest"](session_handle=handle, fetch=["out:0"], store_errors_in_response_body=True)
    named = b"\x0a\x05fed:0" + b"\x12" + length(raw) + raw
    return request.SerializeToString() + b"\x12" + length(named) + named


def length(raw):
    number, out = len(raw), b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def run_raw(master, handle, raw):
    response = master.call("RunStep", step_with(handle, raw))
    if response.status_code:
        raise MasterError(response.status_code, response.status_error_message)
    return response


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_tensor_as_feed(master, server, name):
    handle = master.create_session(identity_graph())
    with pytest.raises(MasterError) as caught:
        run_raw(master, handle, NONSENSE[name])
    assert caught.value.code in (codes.INVALID_ARGUMENT, codes.INTERNAL, codes.RESOURCE_EXHAUSTED), caught.value
    good = run_raw(master, handle, dtypes.to_proto(np.float32([1, 2]), "float").SerializeToString())
    assert len(good.tensor) == 1
    master.close_session(handle)


@pytest.mark.parametrize("name", [name for name in NONSENSE if "3]" in name or "content" in name or "size" in name])
def test_nonsense_tensor_as_constant(master, server, name):
    b = Builder()
    b.add("Identity", b.const([1.0]), name="out")
    constant = b.graph.node[0]
    constant.attr["value"].tensor.ParseFromString(NONSENSE[name])
    with pytest.raises(MasterError) as caught:
        handle = master.create_session(b.graph)
        master.run_step(handle, fetches=["out:0"])
    assert caught.value.code in (codes.INVALID_ARGUMENT, codes.INTERNAL, codes.RESOURCE_EXHAUSTED), caught.value


def test_mutated_tensors_never_crash_the_server(master, server):
    handles = {name: master.create_session(identity_graph(name)) for name in ("float", "string", "int64", "complex64")}
    originals = {
        "float": dtypes.to_proto(np.arange(12, dtype=np.float32).reshape(3, 4), "float"),
        "string": dtypes.to_proto(np.array([b"one", b"", b"three\0"], object), "string"),
        "int64": tensor_pb2.TensorProto(dtype=dtypes.enum("int64"), int64_val=[1, 2, 3]),
        "complex64": dtypes.to_proto(np.ones(3, np.complex64), "complex64"),
    }
    rng = np.random.default_rng(0)
    for name, original in originals.items():
        valid = bytearray(original.SerializeToString())
        for _ in range(2500):
            raw = bytearray(valid)
            for _ in range(rng.integers(1, 4)):
                raw[rng.integers(len(raw))] = rng.integers(256)
            if rng.random() < 0.2:
                raw = raw[: rng.integers(len(raw))]
            try:
                run_raw(master, handles[name], bytes(raw))
            except MasterError as error:
                assert error.code != codes.UNAVAILABLE, f"{raw.hex()}: {error}"


def test_mutated_constants_never_crash_the_server(master, server):
    originals = [
        dtypes.to_proto(np.arange(12, dtype=np.float32).reshape(3, 4), "float"),
        dtypes.to_proto(np.array([b"one", b"", b"three\0"], object), "string"),
        tensor_pb2.TensorProto(dtype=dtypes.enum("int64"), int64_val=[1, 2, 3]),
    ]
    rng = np.random.default_rng(1)
    refused = 0
    for original in originals:
        valid = original.SerializeToString()
        b = Builder()
        node = b.graph.node.add(name="mutated", op="Const")
        node.attr["dtype"].type = original.dtype
        node.attr["value"].tensor.CopyFrom(original)
        graph = b.graph.SerializeToString()
        at = graph.index(valid)
        for _ in range(400):
            raw = bytearray(graph)
            for _ in range(rng.integers(1, 4)):
                raw[at + rng.integers(len(valid))] = rng.integers(256)
            message = b"\x0a" + length(raw) + raw  # CreateSessionRequest.graph_def
            try:
                handle = master.call("CreateSession", bytes(message)).session_handle
                try:
                    master.run_step(handle, fetches=["mutated:0"])
                finally:
                    master.close_session(handle)
            except MasterError as error:
                refused += 1
                assert error.code not in (codes.UNAVAILABLE, codes.DEADLINE_EXCEEDED), f"{raw.hex()}: {error}"
    assert refused > 100


def two_nodes(second_input, second_type="float", first_name="a", second_name="b"):
    b = Builder()
    b.add("Const", name=first_name, dtype="float", value=dtypes.to_proto(np.float32(1), "float"))
    node = b.graph.node.add(name=second_name, op="Identity", input=[second_input])
    node.attr["T"].type = dtypes.enum(second_type)
    return b.graph


def cycle():
    b = Builder()
    for name, other in (("a", "b"), ("b", "a")):
        node = b.graph.node.add(name=name, op="Identity", input=[other])
        node.attr["T"].type = dtypes.enum("float")
    return b.graph


GRAPHS = {
    "slot too large": (two_nodes("a:1"), "b", "a"),
    "negative slot": (two_nodes("a:-1"), "b", "a:-1"),
    "slot over 32 bits": (two_nodes("a:4294967296"), "b", "4294967296"),
    "missing node": (two_nodes("missing"), "b", "missing"),
    "missing control input": (two_nodes("^missing"), "b", "missing"),
    "empty input": (two_nodes(""), "b", ""),
    "bare caret": (two_nodes("^"), "b", ""),
    "dtypes differ": (two_nodes("a", "int32"), "b", "a"),
    "one name twice": (two_nodes("a", second_name="a"), "a", ""),
    "cycle": (cycle(), "", ""),
}


# TensorFlow's own server takes a slot modulo 2^32.
BROKEN = [pytest.param(n, marks=pytest.mark.ours_only) if "32 bits" in n else n for n in GRAPHS]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_edge_at_creation(master, server, name):
    graph, node, text = GRAPHS[name]
    with pytest.raises(MasterError) as caught:
        master.create_session(graph)
    assert caught.value.code == codes.INVALID_ARGUMENT, caught.value
    assert node in caught.value.text and text in caught.value.text


@pytest.mark.parametrize("name", BROKEN)
def test_broken_edge_at_extension_leaves_no_half_of_it(master, server, name):
    handle = master.create_session(identity_graph())
    request = MESSAGES["ExtendSessionRequest"](session_handle=handle)
    request.graph_def.ParseFromString(GRAPHS[name][0].SerializeToString())
    with pytest.raises(MasterError) as caught:
        master.call("ExtendSession", request)
    assert caught.value.code == codes.INVALID_ARGUMENT, caught.value
    request.graph_def.ParseFromString(two_nodes("a").SerializeToString())
    assert master.call("ExtendSession", request).new_graph_version == 1
    assert dtypes.from_proto(master.run_step(handle, fetches=["b:0"])["b:0"])[1] == 1.0
    master.close_session(handle)


def function(library, name, callee):
    """float -> float, its body one call of `callee`."""
    body = library.function.add()
    body.signature.name = name
    body.signature.input_arg.add(name="x", type=dtypes.enum("float"))
    body.signature.output_arg.add(name="y", type=dtypes.enum("float"))
    node = body.node_def.add(name="call", op=callee, input=["x"])
    if callee == "Identity":
        node.attr["T"].type = dtypes.enum("float")
        body.ret["y"] = "call:output:0"
    else:
        body.ret["y"] = "call:y:0"


def calling(name, functions):
    b = Builder()
    b.const(1.0)
    for function_name, callee in functions:
        function(b.graph.library, function_name, callee)
    b.graph.node.add(name="root", op=name, input=["Const"])
    return b.graph


ENDLESS = {
    "itself": calling("f", [("f", "f")]),
    "each other": calling("f", [("f", "g"), ("g", "f")]),
    "missing": calling("f", [("f", "nowhere")]),
}


@pytest.mark.ours_only
@pytest.mark.parametrize("name", ENDLESS)
def test_functions_without_an_end_are_refused(master, server, name):
    started = time.monotonic()
    with pytest.raises(MasterError) as caught:
        handle = master.create_session(ENDLESS[name])
        master.run_step(handle, fetches=["root:0"])
    assert caught.value.code == (codes.NOT_FOUND if name == "missing" else codes.INVALID_ARGUMENT)
    assert time.monotonic() - started < 20


@pytest.mark.ours_only
def test_a_very_long_chain_of_functions(master, server):
    names = [f"f{i}" for i in range(10000)]
    graph = calling("f0", list(zip(names, [*names[1:], "Identity"], strict=True)))
    try:
        handle = master.create_session(graph)
        master.run_step(handle, fetches=["root:0"])
    except MasterError as error:
        assert error.code in (codes.INVALID_ARGUMENT, codes.UNIMPLEMENTED, codes.NOT_FOUND)


def test_a_gradient_that_points_to_itself(master, server):
    graph = calling("f", [("f", "Identity")])
    graph.library.gradient.add(function_name="f", gradient_func="f")
    try:
        handle = master.create_session(graph)
        master.run_step(handle, fetches=["root:0"])
    except MasterError as error:
        assert error.code != codes.UNAVAILABLE


def recursion(depth):
    """sum_up(n) = n > 0 ? n + sum_up(n - 1) : 0, of `depth`."""
    b = Builder()
    int32 = dtypes.enum("int32")

    def body(name, result):
        made = b.graph.library.function.add()
        made.signature.name = name
        made.signature.input_arg.add(name="n", type=int32)
        made.signature.output_arg.add(name="sum", type=int32)
        made.ret["sum"] = result

        def node(op, *inputs, **attrs):
            added = made.node_def.add(name=op.lower(), op=op, input=inputs)
            for key, value in attrs.items():
                added.attr[key].CopyFrom(value)

        return node

    def attr(**fields):
        return attr_value_pb2.AttrValue(**fields)

    def constant(node, value):
        node("Const", dtype=attr(type=int32), value=attr(tensor=dtypes.to_proto(np.int32(value), "int32")))

    types = attr(list=attr_value_pb2.AttrValue.ListValue(type=[int32]))
    node = body("sum_up", "if:output:0")
    constant(node, 0)
    node("Greater", "n", "const:output:0", T=attr(type=int32))
    node("If", "greater:z:0", "n", Tcond=attr(type=dtypes.enum("bool")), Tin=types, Tout=types,
         then_branch=attr(func=attr_value_pb2.NameAttrList(name="sum_up_more")),
         else_branch=attr(func=attr_value_pb2.NameAttrList(name="sum_up_end")))
    node = body("sum_up_more", "addv2:z:0")
    constant(node, 1)
    node("Sub", "n", "const:output:0", T=attr(type=int32))
    node("sum_up", "sub:z:0")
    node("AddV2", "n", "sum_up:sum:0", T=attr(type=int32))
    node = body("sum_up_end", "zeroslike:y:0")
    node("ZerosLike", "n", T=attr(type=int32))
    b.const(np.int32(depth), "int32")
    b.graph.node.add(name="root", op="sum_up", input=["Const"])
    return b.graph


REFUSALS = (codes.INVALID_ARGUMENT, codes.FAILED_PRECONDITION, codes.RESOURCE_EXHAUSTED, codes.UNIMPLEMENTED)


@pytest.mark.ours_only
@pytest.mark.parametrize("depth", [6, 1_000_000])
def test_functions_that_call_themselves_under_a_condition(master, server, depth):
    """A sum by recursion is computed, or refused with a reason; a depth without an end overflows no stack."""
    try:
        handle = master.create_session(recursion(depth))
        values = master.run_step(handle, fetches=["root:0"])
    except MasterError as error:
        assert error.code in REFUSALS and error.text
    else:
        assert depth == 6 and dtypes.from_proto(values["root:0"])[1] == 21
