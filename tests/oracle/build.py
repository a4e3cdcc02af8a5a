"""Graphs built node by node, past the shape checks of the Python client, and the steps that run them."""

import dataclasses

import numpy as np
from tensorflow.core.framework import attr_value_pb2, graph_pb2
from tensorflow.python.framework import op_def_registry

from tests.oracle import dtypes

PRODUCER = 2474
"""Graph version that TensorFlow 2.21's client stamps on its graphs."""


@dataclasses.dataclass(frozen=True)
class Ref:
    """Output `index` of node `node`, of dtype `dtype`."""

    node: str
    index: int
    dtype: str

    @property
    def name(self):
        return f"{self.node}:{self.index}"


@dataclasses.dataclass
class Step:
    """One RunStep: what to fetch (Refs or names), what to run (node names), what to feed (Ref, array pairs)."""

    fetches: list = dataclasses.field(default_factory=list)
    targets: list = dataclasses.field(default_factory=list)
    feeds: list = dataclasses.field(default_factory=list)


class Node(str):
    """Name of a node that was added; `outputs` are its Refs."""

    outputs = ()

    def __getitem__(self, index):
        return self.outputs[index]


class Builder:
    """Collects a GraphDef. Node names get a prefix, so that state of one case is never that of another."""

    def __init__(self, prefix=""):
        self.graph = graph_pb2.GraphDef()
        self.graph.versions.producer = PRODUCER
        self.graph.versions.min_consumer = 12
        self.prefix = prefix
        self.counts = {}

    def name(self, base):
        count = self.counts.get(base, 0)
        self.counts[base] = count + 1
        return f"{self.prefix}{base}" + (f"_{count}" if count else "")

    def placeholder(self, dtype):
        """A Placeholder of unknown rank."""
        return self.node("Placeholder", dtype=dtype, shape=None)

    def const(self, value, dtype="float"):
        array = as_array(value, dtype)
        return self.node("Const", dtype=dtype, value=dtypes.to_proto(array, dtype))

    def add(self, op, *inputs, name=None, control=(), device="", **attrs):
        """Adds a node and returns it. An input is a Ref, or a list of Refs for an argument that is a list.

        Attributes that the inputs settle (types, list lengths) need not be given. An attribute whose name is a
        Python keyword or clashes with an argument takes a trailing underscore.
        """
        definition = op_def_registry.get(op)
        if definition is None:
            raise ValueError(f"no op {op}")
        attrs = {key.rstrip("_"): value for key, value in attrs.items()}
        node = self.graph.node.add(name=name or self.name(op), op=op, device=device)
        for argument, value in zip(definition.input_arg, inputs, strict=True):
            refs = value if isinstance(value, list) else [value]
            node.input.extend(ref.name for ref in refs)
            if argument.number_attr:
                attrs.setdefault(argument.number_attr, len(refs))
            if argument.type_list_attr:
                attrs.setdefault(argument.type_list_attr, [ref.dtype for ref in refs])
            elif argument.type_attr and refs:
                attrs.setdefault(argument.type_attr, refs[0].dtype)
        node.input.extend(f"^{other}" for other in control)
        kinds = {attr.name: attr for attr in definition.attr}
        for key, value in attrs.items():
            kind = kinds[key].type if key in kinds else _guess(value)
            node.attr[key].CopyFrom(attr_value(kind, value))
        for attr in definition.attr:
            if attr.name not in attrs and attr.HasField("default_value"):
                node.attr[attr.name].CopyFrom(attr.default_value)
        added = Node(node.name)
        added.outputs = [Ref(node.name, i, d) for i, d in enumerate(_output_dtypes(definition, node))]
        return added

    def node(self, op, *inputs, **attrs):
        """Adds a node with one output and returns that output's Ref."""
        added = self.add(op, *inputs, **attrs)
        return added.outputs[0]


def _output_dtypes(definition, node):
    out = []
    for argument in definition.output_arg:
        if argument.type_list_attr:
            out += [dtypes.name_of(t) for t in node.attr[argument.type_list_attr].list.type]
            continue
        number = node.attr[argument.type_attr].type if argument.type_attr else argument.type
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        out += [dtypes.name_of(number)] * count
    return out


def _guess(value):
    kinds = {bool: "bool", int: "int", float: "float", str: "string", bytes: "string"}
    return kinds.get(type(value), "list(string)")


def attr_value(kind, value):
    """`value` as an AttrValue of the attribute type `kind` of an OpDef."""
    out = attr_value_pb2.AttrValue()
    if kind.startswith("list("):
        out.list.SetInParent()
        for item in value:
            _fill(out.list, kind[5:-1], item, repeated=True)
    else:
        _fill(out, kind, value, repeated=False)
    return out


_FIELDS = {"int": "i", "float": "f", "bool": "b", "string": "s", "type": "type", "shape": "shape", "tensor": "tensor"}


def _fill(target, kind, value, repeated):
    field = _FIELDS[kind]
    if kind == "type":
        value = dtypes.enum(value) if isinstance(value, str) else value
    elif kind == "string" and isinstance(value, str):
        value = value.encode()
    elif kind == "shape":
        shape = target.shape.add() if repeated else target.shape
        shape.SetInParent()
        if value is None:
            shape.unknown_rank = True
        for size in value or ():
            shape.dim.add(size=size)
        return
    elif kind == "tensor":
        (target.tensor.add() if repeated else target.tensor).CopyFrom(value)
        return
    if repeated:
        getattr(target, field).append(value)
    else:
        setattr(target, field, value)


def as_array(value, dtype):
    """A literal of a table (number, nested list, string, array) as an array of `dtype`."""
    if dtype == "string":
        strings = np.array(value, dtype=object)
        encode = np.frompyfunc(lambda s: s if isinstance(s, bytes) else str(s).encode(), 1, 1)
        return np.asarray(encode(strings), dtype=object)
    return np.asarray(value).astype(dtypes.NUMPY[dtype])
