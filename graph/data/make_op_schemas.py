#!/usr/bin/env python3
"""Writes op_schemas.binpb: the schemas of TensorFlow's ops, without their documentation, as a `tensorflow.OpList`.

Run it with the Python of an environment that holds TensorFlow; the file lands beside this script. Ops are sorted by name
and the encoding is deterministic, so the same TensorFlow gives the same bytes.
"""

import pathlib

from google.protobuf import text_format
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

# Registered only in TensorFlow's builds for GPUs, whose graphs may name them.
GPU_ONLY = """
op {
  name: "_CopyFromGpuToHost"
  input_arg { name: "input" type_attr: "T" }
  output_arg { name: "output" type_attr: "T" }
  attr { name: "T" type: "type" }
}
op {
  name: "_CopyFromHostToGpu"
  input_arg { name: "input" type_attr: "T" }
  output_arg { name: "output" type_attr: "T" }
  attr { name: "T" type: "type" }
}
"""


def registered_ops():
    """The ops of the installed TensorFlow, the internal ones included."""
    buffer = pywrap_tf_session.TF_GetAllOpList()
    return op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(buffer))


def main():
    ops = {op.name: op for op in text_format.Parse(GPU_ONLY, op_def_pb2.OpList()).op}
    ops.update((op.name, op) for op in registered_ops().op)
    for op in ops.values():
        op.ClearField("summary")
        op.ClearField("description")
        for part in [*op.input_arg, *op.output_arg, *op.attr]:
            part.ClearField("description")
        for arg in [*op.input_arg, *op.output_arg]:
            arg.ClearField("experimental_full_type")
    table = op_def_pb2.OpList(op=[ops[name] for name in sorted(ops)])
    target = pathlib.Path(__file__).with_name("op_schemas.binpb")
    target.write_bytes(table.SerializeToString(deterministic=True))
    print(f"{target}: {len(table.op)} ops, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
