"""Ops that take apart or make up what files hold. Ops that touch files themselves are in the end-to-end tests."""

import gzip
import zlib as zlib_module

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403
from tensorflow.core.example import example_pb2

OPS = """DecodeCSV DecodeRaw DecodePaddedRaw DecodeCompressed ParseTensor ParseExampleV2 ParseSingleExample ShardedFilename ShardedFilespec
ScalarSummary HistogramSummary MergeSummary TensorSummaryV2"""

for basename, shard, shards in (("a/b", 0, 1), ("", 7, 12), ("x", 123456, 1234567), ("x", -1, -2)):
    op("ShardedFilename", inputs=[basename, shard, shards])
    op("ShardedFilespec", inputs=[basename, shards])
bad("ShardedFilename", inputs=[["a"], 0, 1], code=INVALID_ARGUMENT, text=True)

RECORDS = [
    "1,2,3",
    "1,,3",
    '"1",2,3',
    "1,2",
    "1,2,3,4",
    "",
    '1,"2,3',
    '1,2"3,4',
    "1,2,x",
    " 1,+2,-3",
    "1,2,3\r\n",
    "9999999999,1,1",
    "1,2,",
]
for record in RECORDS:
    for defaults in ([[0], [7], [9]], [[], [], []]):
        for types in (["int32"] * 3, ["int64"] * 3, ["float"] * 3, ["string"] * 3):
            op(
                "DecodeCSV",
                inputs=[[record], *([str(v) for v in d] if types[0] == "string" else d for d in defaults)],
                OUT_TYPE=[types],
                either=True,
            )
op("DecodeCSV", inputs=[["a;b", "c;"], ["?"], ["!"]], OUT_TYPE=[["string", "string"]], field_delim=";")
op("DecodeCSV", inputs=[["a,NA", "NA,d"], ["?"], ["!"]], OUT_TYPE=[["string", "string"]], na_value="NA")
op("DecodeCSV", inputs=[["1,2,3", "4,5,6"], [0]], OUT_TYPE=[["int32"]], select_cols=[1])
op("DecodeCSV", inputs=[['"a",b'], ["?"], ["!"]], OUT_TYPE=[["string", "string"]], use_quote_delim=False)

BYTES = bytes(range(1, 33))
for little in (True, False):
    op("DecodeRaw", inputs=[[BYTES, BYTES[::-1]]], little_endian=little)
    op("DecodePaddedRaw", out_type=["float", "int16", "uint8", "int64"], inputs=[[BYTES, BYTES[::-1]], 32], little_endian=little)
op("DecodeRaw", out_type=["int32"], inputs=[[b"", b""]])
bad("DecodeRaw", out_type=["int32"], inputs=[[b"abc"]], code=INVALID_ARGUMENT, text=True)
bad("DecodeRaw", out_type=["int32"], inputs=[[b"abcd", b"a"]], code=INVALID_ARGUMENT)
op("DecodePaddedRaw", out_type=["int32"], inputs=[[b"abc", b"abcdefghij"], 8])
bad("DecodePaddedRaw", out_type=["int32"], inputs=[[b"abc"], 7], code=INVALID_ARGUMENT)
bad("DecodePaddedRaw", out_type=["int32"], inputs=[[b"abc"], 0], code=INVALID_ARGUMENT)

TEXT = b"hello hello hello " * 50
op("DecodeCompressed", inputs=[[TEXT, b""]])
op("DecodeCompressed", inputs=[[zlib_module.compress(TEXT)]], compression_type="ZLIB")
op("DecodeCompressed", inputs=[[gzip.compress(TEXT)]], compression_type="GZIP")
bad("DecodeCompressed", inputs=[[TEXT]], compression_type="ZLIB")

bad("ParseTensor", out_type=["float"], inputs=[b"\xff\xff"], code=INVALID_ARGUMENT)
bad("ParseTensor", out_type=["float"], inputs=[[b""]], code=INVALID_ARGUMENT)


def example(**features):
    message = example_pb2.Example()
    for key, values in features.items():
        feature = message.features.feature[key]
        if isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return message.SerializeToString()


FULL = example(a=[1, 2], f=[0.5], s=[b"x", b"y"])
BATCHES = [[FULL, FULL], [FULL, example(f=[1.5])], [example(a=[1], f=[0.5])], [example(a=[0.5], f=[0.5])], [b"\xff\xff"], [b""], []]
for batch in BATCHES:
    for default in ([5, 6], []):
        op(
            "ParseExampleV2",
            inputs=[batch, [], ["s"], ["a", "f"], ["s"], default, 2.5],
            Tdense=[["int64", "float"]],
            num_sparse=1,
            sparse_types=[["string"]],
            ragged_value_types=[["string"]],
            ragged_split_types=[["int32"]],
            dense_shapes=[[2], []],
            either=True,
        )
for serialized in (FULL, example(f=[1.5]), example(a=[7]), b"\xff", b""):
    op(
        "ParseSingleExample",
        inputs=[serialized, [5, 6]],
        Tdense=[["int64"]],
        num_sparse=1,
        sparse_keys=["s"],
        sparse_types=[["string"]],
        dense_keys=["a"],
        dense_shapes=[[2]],
        either=True,
    )

op("ScalarSummary", inputs=["tag", scalar()])
op("ScalarSummary", T=["float"], inputs=[["a", "b"], [1.0, -2.5]])
bad("ScalarSummary", T=["float"], inputs=[["a"], [1.0, -2.5]], code=INVALID_ARGUMENT, text=True)
op("HistogramSummary", inputs=["tag", shape(3, 5)])
for values in ([], [0.0], [1e300, -1e300], [1e-13, 5.0, 5.0]):
    op("HistogramSummary", T=["double"], inputs=["tag", values])
bad("HistogramSummary", T=["float"], inputs=["tag", [np.nan]], code=INVALID_ARGUMENT)
bad("HistogramSummary", T=["float"], inputs=["tag", [np.inf]], code=INVALID_ARGUMENT)
op("MergeSummary", inputs=[[b"", b"\x0a\x03\x0a\x01a"], b"\x0a\x03\x0a\x01b"], N=2)
bad("MergeSummary", inputs=[b"\x0a\x03\x0a\x01a", b"\x0a\x03\x0a\x01a"], N=2, code=INVALID_ARGUMENT, text=True)
bad("MergeSummary", inputs=[b"\xff"], N=1, code=INVALID_ARGUMENT)
op("TensorSummaryV2", T=["float", "string", "int64", "bool"], inputs=["tag", shape(2, 3), b""])
