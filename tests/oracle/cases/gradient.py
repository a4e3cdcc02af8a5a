"""SymbolicGradient of functions of one op: the gradients that TensorFlow has as functions."""

import numpy as np
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import op_def_registry

from tests.oracle import dtypes
from tests.oracle.build import Builder, Step, as_array, attr_value
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = "SymbolicGradient"


def gradient(name, inputs, output, tolerance=None, results=None, **attrs):
    """The gradients of `name` on `inputs`, pairs of dtype and value, where its output, of this dtype, has that gradient."""

    def build(b):
        definition = op_def_registry.get(name)
        function = function_pb2.FunctionDef()
        function.signature.name = f"{b.prefix.strip('/')}_function"
        node = function.node_def.add(name="node", op=name)
        for i, (dtype, _) in enumerate(inputs):
            function.signature.input_arg.add(name=f"x{i}", type=dtypes.enum(dtype))
            node.input.append(f"x{i}")
        function.signature.output_arg.add(name="y", type=dtypes.enum(output[0]))
        function.ret["y"] = f"node:{definition.output_arg[0].name}:0"
        own = Builder()
        refs = [own.placeholder(dtype) for dtype, _ in inputs]
        added = own.add(name, *refs, **attrs)
        for made in own.graph.node:
            if made.name == str(added):
                for key, value in made.attr.items():
                    node.attr[key].CopyFrom(value)
        b.graph.library.function.append(function)
        rng = np.random.default_rng(len(name))
        feeds = []
        for dtype, value in [*inputs, output]:
            array = value(rng, dtype) if callable(value) else as_array(value, dtype)
            feeds.append((b.placeholder(dtype), array))
        types = [dtype for dtype, _ in inputs]
        call = b.graph.node.add(name=b.name("gradient"), op="SymbolicGradient")
        call.input.extend(ref.name for ref, _ in feeds)
        call.attr["Tin"].CopyFrom(attr_value("list(type)", [*types, output[0]]))
        call.attr["Tout"].CopyFrom(attr_value("list(type)", types))
        call.attr["f"].func.name = function.signature.name
        b.graph.versions.producer = 26
        wanted = range(len(types)) if results is None else results
        fetches = []
        for i in wanted:
            identity = b.graph.node.add(name=b.name("result"), op="Identity", input=[f"{call.name}:{i}"])
            identity.attr["T"].CopyFrom(attr_value("type", types[i]))
            fetches.append(f"{identity.name}:0")
        return [Step(fetches=fetches, feeds=feeds)]

    program(f"gradient of {name}", build, ops=["SymbolicGradient"], **(tolerance or {"rtol": 1e-4, "atol": 1e-5}))


for t in ("float", "double"):
    for x, y in (((3, 4), (3, 4)), ((3, 4), (4,)), ((1,), (2, 3)), ((2, 1), (2, 3))):
        for name in ("Xlogy", "Xdivy", "Xlog1py"):
            gradient(name, [(t, ties(*x)), (t, positive(*y))], (t, unit(*np.broadcast_shapes(x, y))))
    for adj_x in (False, True):
        for adj_y in (False, True):
            for batch_x, batch_y in (((), ()), ((2,), (2,)), ((3, 1), (2,)), ((1,), (4,))):
                x = (*batch_x, *((4, 3) if adj_x else (3, 4)))
                y = (*batch_y, *((5, 4) if adj_y else (4, 5)))
                out = (*np.broadcast_shapes(batch_x, batch_y), 3, 5)
                gradient("BatchMatMulV2", [(t, unit(*x)), (t, unit(*y))], (t, unit(*out)), adj_x=adj_x, adj_y=adj_y)
gradient("ConjugateTranspose", [("complex64", unit(3, 4)), ("int32", [1, 0])], ("complex64", unit(4, 3)), results=[0])
gradient("Reverse", [("float", unit(3, 4)), ("bool", [True, False])], ("float", unit(3, 4)), results=[0])
gradient("AvgPool", [("float", unit(1, 5, 5, 2))], ("float", unit(1, 3, 3, 2)), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
gradient("MaxPool", [("float", unit(1, 5, 5, 2))], ("float", unit(1, 3, 3, 2)), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
indices = [("int32", [5, 6]), ("int32", [1, 2]), ("int32", [3, 6]), ("int32", [1, 2])]
gradient("StridedSliceGrad", [*indices, ("float", unit(2, 2))], ("float", unit(5, 6)), results=[4])
