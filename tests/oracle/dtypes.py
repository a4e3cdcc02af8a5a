"""dtypes as the tables name them, tensors to and from the wire, and which dtypes TensorFlow's CPU kernels have."""

import functools
import pathlib

import ml_dtypes
import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.python.framework import op_def_registry, tensor_util

FLOATS = ["half", "bfloat16", "float", "double"]
COMPLEX = ["complex64", "complex128"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTS = SIGNED + UNSIGNED
QUANTIZED = ["qint8", "quint8", "qint16", "quint16", "qint32"]
NUMBERS = FLOATS + COMPLEX + INTS
PLAIN = NUMBERS + ["bool", "string"]

NUMPY = {
    "half": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float": np.float32,
    "double": np.float64,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float4_e2m1fn": ml_dtypes.float4_e2m1fn,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "int2": ml_dtypes.int2,
    "uint2": ml_dtypes.uint2,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "qint8": np.int8,
    "quint8": np.uint8,
    "qint16": np.int16,
    "quint16": np.uint16,
    "qint32": np.int32,
    "bool": np.bool_,
    "string": np.object_,
}

EVERY = list(NUMPY)
"""All dtypes whose values can be fed and fetched."""

UNFEEDABLE = {"variant", "resource"}
"""Values of these dtypes live in the server only, so that a one-op graph cannot be fed with them."""

_INEXACT = FLOATS + COMPLEX + ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"]


def enum(name):
    """The number of a dtype on the wire."""
    return types_pb2.DataType.Value("DT_" + name.upper())


def name_of(number):
    """The table's name of a dtype number, reference types as their base."""
    return types_pb2.DataType.Name(number % 100 if number < 200 else number)[3:].lower()


def is_inexact(name):
    return name in _INEXACT


def epsilon(name):
    """Distance from 1.0 to the next number of the dtype (of the parts, for complex dtypes)."""
    real = {"complex64": "float", "complex128": "double"}.get(name, name)
    return float(ml_dtypes.finfo(NUMPY[real]).eps)


def to_proto(array, name):
    """A TensorProto of dtype `name`, its numbers as tensor_content, its strings as string_val."""
    proto = tensor_pb2.TensorProto(dtype=enum(name))
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if name == "string":
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.tensor_content = np.ascontiguousarray(array).tobytes()
    return proto


def from_proto(proto):
    """(dtype name, array) of an answer, whichever of the protocol's encodings it uses."""
    name = name_of(proto.dtype)
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if name in UNFEEDABLE:
        return name, None
    if name == "string":
        return name, _strings(proto, shape)
    dtype = np.dtype(NUMPY[name])
    if proto.tensor_content:
        return name, np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    array = tensor_util.MakeNdarray(proto)
    return name, array.view(dtype) if name in QUANTIZED else array.astype(dtype)


def _strings(proto, shape):
    count = int(np.prod(shape, dtype=np.int64))
    values = list(proto.string_val)
    if proto.tensor_content:
        values = _split_strings(proto.tensor_content, count)
    elif values and len(values) < count:
        values += values[-1:] * (count - len(values))
    elif not values:
        values = [b""] * count
    array = np.empty(count, object)
    array[:] = values
    return array.reshape(shape)


def _split_strings(content, count):
    sizes, at = [], 0
    for _ in range(count):
        size = shift = 0
        while content[at] & 0x80:
            size |= (content[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
        sizes.append(size | content[at] << shift)
        at += 1
    values = []
    for size in sizes:
        values.append(content[at : at + size])
        at += size
    return values


def _allowed(op, row):
    """Can a node be made for this kernel? A few are registered for dtypes that the op's own schema rules out."""
    definition = op_def_registry.get(op)
    for attr in definition.attr if definition else ():
        allowed = attr.allowed_values.list.type
        if attr.name in row and allowed and enum(row[attr.name]) not in allowed:
            return False
    return True


@functools.cache
def kernels():
    """Op name to a list of dictionaries {type attribute: dtype name}, one for each CPU kernel; [{}] if unconstrained."""
    table = {}
    path = pathlib.Path(__file__).with_name("cpu_kernels.tsv")
    for line in path.read_text().splitlines()[1:]:
        op, _, rest = line.partition("\t")
        rows = []
        for kernel in rest.split(" ; "):
            pairs = (pair.split("=", 1) for pair in kernel.split(",") if "=" in pair)
            row = {key: value for key, value in pairs if value in NUMPY or value in UNFEEDABLE}
            if row not in rows:
                rows.append(row)
        table[op] = [row for row in rows if _allowed(op, row)]
    return table
