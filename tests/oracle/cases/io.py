"""Ops that take apart or make up what files hold. Ops that touch files themselves are in the end-to-end tests."""

import gzip
import zlib as zlib_module

from tensorflow.python.framework.tensor_util import make_tensor_proto

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """DecodeRaw DecodePaddedRaw DecodeCompressed ParseTensor ShardedFilename ShardedFilespec
ScalarSummary HistogramSummary TensorSummaryV2
DecodeJSONExample"""

for basename, shard, shards in (("a/b", 0, 1), ("", 7, 12), ("x", 123456, 1234567), ("x", -1, -2)):
    op("ShardedFilename", inputs=[basename, shard, shards])
    op("ShardedFilespec", inputs=[basename, shards])
bad("ShardedFilename", inputs=[["a"], 0, 1], code=INVALID_ARGUMENT, text=True)

BYTES = bytes(range(1, 33))
for little in (True, False):
    op("DecodeRaw", inputs=[[BYTES, BYTES[::-1]]], little_endian=little)
    op("DecodePaddedRaw", out_type=["float", "double", "bfloat16", "int8", "uint16", "int16", "uint8", "int64"], inputs=[[BYTES, BYTES[::-1]], 32], little_endian=little)
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

for values in (np.float32([[1, 2], [3, 4]]), np.array([], np.float32), np.float32(7)):
    op("ParseTensor", out_type=["float"], inputs=[make_tensor_proto(values).SerializeToString()])
bad("ParseTensor", out_type=["float"], inputs=[b"\xff\xff"], code=INVALID_ARGUMENT)
bad("ParseTensor", out_type=["float"], inputs=[[b""]], code=INVALID_ARGUMENT)

op("ScalarSummary", inputs=["tag", scalar()])
op("ScalarSummary", T=["float"], inputs=[["a", "b"], [1.0, -2.5]])
bad("ScalarSummary", T=["float"], inputs=[["a"], [1.0, -2.5]], code=INVALID_ARGUMENT, text=True)
op("HistogramSummary", inputs=["tag", shape(3, 5)])
for values in ([], [0.0], [1e300, -1e300], [1e-13, 5.0, 5.0]):
    op("HistogramSummary", T=["double"], inputs=["tag", values])
bad("HistogramSummary", T=["float"], inputs=["tag", [np.nan]], code=INVALID_ARGUMENT)
bad("HistogramSummary", T=["float"], inputs=["tag", [np.inf]], code=INVALID_ARGUMENT)
op("TensorSummaryV2", inputs=["tag", shape(2, 3), b""])

JSON_EXAMPLES = [
    '{}',
    '{"features": null}',
    '{"features": {}}',
    '{"features": {"feature": {}}}',
    '{"features": {"feature": {"b": {"int64List": {"value": ["3", -4, 5.0, 1e3]}}, "a": {"bytes_list": {"value": ["aGk=", "_-8"]}}}}}',
    '{"features": {"feature": {"f": {"floatList": {"value": [1, -2.5, "NaN", "-Infinity", "3.5"]}}, "e": {}, "n": {"floatList": {}}}}}',
]
for text in JSON_EXAMPLES:
    op("DecodeJSONExample", inputs=[text])
op("DecodeJSONExample", inputs=[[JSON_EXAMPLES[:3], JSON_EXAMPLES[3:]]])
op("DecodeJSONExample", inputs=[np.array([], object)])
for text in ("", "{", '{"x": 1}', '{"features": 1}', '{"features": {"feature": {"a": {"floatList": {"value": [true]}}}}}',
             '{"features": {"feature": {"a": {"int64List": {"value": [1.5]}}}}}', '{"features": {"feature": {"a": {"bytesList": {"value": ["!"]}}}}}',
             '{"features": {"feature": {"a": {"floatList": {}, "int64List": {}}}}}'):
    bad("DecodeJSONExample", inputs=[text], code=INVALID_ARGUMENT)
