"""Protocol buffers of any type: a message with fields of every kind, there and back."""

import struct

from google.protobuf import descriptor_pb2

from tests.oracle.build import Step
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = "DecodeProtoV2 EncodeProto"

KINDS = {
    "double": ["double"], "float": ["float", "double"], "int32": ["int32", "int64"], "int64": ["int64"], "uint32": ["uint32", "uint64"],
    "uint64": ["uint64"], "sint32": ["int32", "int64"], "sint64": ["int64"], "fixed32": ["uint32", "uint64"], "fixed64": ["uint64"],
    "sfixed32": ["int32", "int64"], "sfixed64": ["int64"], "bool": ["bool"], "string": ["string"], "bytes": ["string"],
}
NUMBERS = {name: number for number, name in enumerate(KINDS, 1)}


def descriptors():
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="test")
    message = file.message_type.add(name="All")
    field = descriptor_pb2.FieldDescriptorProto
    for name, number in NUMBERS.items():
        kind = getattr(field, f"TYPE_{name.upper()}")
        default = {"bool": "true", "string": "none", "bytes": "none"}.get(name, "7")
        message.field.add(name=f"one_{name}", number=number, type=kind, label=field.LABEL_OPTIONAL, default_value=default)
        message.field.add(name=f"many_{name}", number=20 + number, type=kind, label=field.LABEL_REPEATED)
        if name not in ("string", "bytes"):
            message.field.add(name=f"packed_{name}", number=40 + number, type=kind, label=field.LABEL_REPEATED).options.packed = True
    message.enum_type.add(name="Colour").value.extend([descriptor_pb2.EnumValueDescriptorProto(name="RED", number=2), descriptor_pb2.EnumValueDescriptorProto(name="BLUE", number=5)])
    message.field.add(name="colour", number=60, type=field.TYPE_ENUM, type_name=".test.All.Colour", label=field.LABEL_OPTIONAL)
    message.field.add(name="inner", number=61, type=field.TYPE_MESSAGE, type_name=".test.All", label=field.LABEL_REPEATED)
    return b"bytes://" + descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


SOURCE = descriptors()
ATTRS = {"message_type": "test.All", "descriptor_source": SOURCE}


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def on_wire(name, value):
    """The wire type and the bytes of a value."""
    if name in ("double", "fixed64", "sfixed64"):
        return 1, struct.pack({"double": "<d", "fixed64": "<Q", "sfixed64": "<q"}[name], value)
    if name in ("float", "fixed32", "sfixed32"):
        return 5, struct.pack({"float": "<f", "fixed32": "<I", "sfixed32": "<i"}[name], value)
    if name in ("string", "bytes"):
        return 2, varint(len(value)) + value
    if name in ("sint32", "sint64"):
        return 0, varint(value << 1 ^ value >> 63)
    return 0, varint(int(value))


def sample(name):
    if name in ("string", "bytes"):
        return [b"abc", b"", "é".encode()]
    if name in ("double", "float"):
        return [1.5, -0.25, 1e10]
    if name == "bool":
        return [True, False, True]
    top = (1 << (31 if "32" in name else 63)) - 1
    return [5, top * 2 + 1, 0] if name.startswith(("u", "f")) else [5, -3, top]


def tagged(number, wire, data):
    return varint(number << 3 | wire) + data


def message(name):
    values = [on_wire(name, value) for value in sample(name)]
    number = NUMBERS[name]
    out = tagged(number, *values[0]) + tagged(number, *values[1])
    out += b"".join(tagged(20 + number, *value) for value in values)
    packed = b"".join(data for _, data in values)
    if name not in ("string", "bytes"):
        out += tagged(40 + number, 2, varint(len(packed)) + packed)
    return out + tagged(60, 0, varint(5)) + tagged(61, 2, varint(2) + b"\x18\x01") + tagged(99, 0, b"\x01")


for kind_name, types in KINDS.items():
    names = [f"one_{kind_name}", f"many_{kind_name}"] + ([] if kind_name in ("string", "bytes") else [f"packed_{kind_name}"])
    for dtype in types:
        for sanitize in (True, False):
            op("DecodeProtoV2", inputs=[[[message(kind_name)], [b""]]], field_names=names, output_types=[dtype] * len(names), sanitize=sanitize, **ATTRS)
        rows = np.array([sample(kind_name), sample(kind_name)[::-1]], object)
        for size in ([[1, 3, 2][: len(names)], [0, 1, 3][: len(names)]], [[0] * len(names)] * 2):
            program_values = [rows] * len(names)

            def build(b, names=tuple(names), dtype=dtype, values=program_values, size=size):
                inputs = [b.const(value, dtype) for value in values]
                return [Step([b.node("EncodeProto", b.const(size, "int32"), inputs, field_names=list(names), **ATTRS)])]

            program(f"encode_{kind_name}_{dtype}", build, ops=["EncodeProto"])

op("DecodeProtoV2", inputs=[message("int32")], field_names=["inner", "colour", "one_string"], output_types=["string", "int32", "string"], **ATTRS)
op("DecodeProtoV2", inputs=[[message("bool")]], field_names=[], output_types=[], **ATTRS)
op("DecodeProtoV2", inputs=[["one_int32: 4 many_string: 'a' many_string: 'b' colour: RED inner { one_bool: true }", ""]], message_format="text",
   field_names=["one_int32", "many_string", "colour", "inner"], output_types=["int32", "string", "int32", "string"], **ATTRS)
for case in (
    {"inputs": [[b"\xff"]]}, {"inputs": [[b"\xff"]], "sanitize": False}, {"inputs": [["x {"]], "message_format": "text"}, {"inputs": [np.zeros(0, object)]},
    {"inputs": [b""], "message_format": "json"}, {"inputs": [b""], "field_names": ["none"]}, {"inputs": [b""], "output_types": ["float"]},
    {"inputs": [b""], "output_types": ["int32", "int32"]}, {"inputs": [b""], "message_type": "test.None"}, {"inputs": [b""], "descriptor_source": b"bytes://x"},
):
    bad("DecodeProtoV2", **{"field_names": ["one_int32"], "output_types": ["int32"], **ATTRS, **case})
for size, value, names in (([[2]], [[1]], ["one_int32"]), ([[1, 1]], [[1]], ["one_int32"]), ([[1]], [1], ["one_int32"]), ([[1]], [[1]], ["none"]), ([[1]], [[1]], ["one_float"])):
    program("encode_bad", lambda b, size=size, value=value, names=names: [Step([b.node("EncodeProto", b.const(size, "int32"), [b.const(value, "int32")], field_names=names, **ATTRS)])], fails=True, code=INVALID_ARGUMENT)
