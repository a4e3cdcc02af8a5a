"""Strings: joining, splitting, patterns, numbers as text, Unicode, hashes."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """AsString DecodeBase64 EncodeBase64 Fingerprint ReduceJoin RegexFullMatch RegexReplace StaticRegexFullMatch
StaticRegexReplace StringFormat StringJoin StringLength StringLower StringNGrams StringSplit StringSplitV2 StringStrip
StringToHashBucket StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeDecode
UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode UnsortedSegmentJoin
UnicodeScript"""

WORDS = [b"", b"a", b"Hello, World!", b" \t two words\n ", "h\u00e9 \u4f60\u597d \U0001f600".encode(), b"\xff\x00\xfe", b"x" * 300]

for T in ("float", "double", "half", "bfloat16"):
    numbers = [0.0, -0.0, 1.5, -1234.5678, 1e10, 1e-5, 100000.0, 1e6, float("inf"), float("-inf"), float("nan")]
    if T == "half":
        numbers[4], numbers[7] = 6e4, 5e4
    for attrs in ({}, {"scientific": True}, {"shortest": True}, {"precision": 0}, {"precision": 3, "width": 12}, {"precision": 12, "scientific": True}):
        op("AsString", T=T, inputs=[numbers], **attrs)
        for fill in (" ", "+", "-", "0", "#"):
            op("AsString", T=T, inputs=[numbers], width=14, fill=fill, **{k: v for k, v in attrs.items() if k != "width"})
for T in ("complex64", "complex128"):
    op("AsString", T=T, inputs=[shape(2, 3)], precision=2)
    op("AsString", T=T, inputs=[shape(2, 3)], shortest=True)
for T in INTS:
    op("AsString", T=T, inputs=[shape(2, 3)])
    for fill in (" ", "+", "-", "0", ""):
        op("AsString", T=T, inputs=[shape(2, 3)], width=6, fill=fill)
op("AsString", T=["bool", "string"], inputs=[shape(2, 3)])
bad("AsString", T=["int32"], inputs=[[1]], precision=2, text=True)
bad("AsString", T=["int32"], inputs=[[1]], shortest=True, text=True)
bad("AsString", T=["float"], inputs=[[1.0]], scientific=True, shortest=True, text=True)
bad("AsString", T=["float"], inputs=[[1.0]], fill="x", text=True)
bad("AsString", T=["float"], inputs=[[1.0]], fill="00", text=True)

for pad in (False, True):
    op("EncodeBase64", inputs=[WORDS], pad=pad)
op("DecodeBase64", inputs=[[b"", b"YQ==", b"YQ", b"YWI=", b"YWJj", b"-_8=", b"YWJjZGVmZ2hpamtsbW5vcA=="]])
for text in (b"a", b"YW J", b"+/8=", b"Y===", b"YQ=", b"abcde"):
    bad("DecodeBase64", inputs=[[text]], code=INVALID_ARGUMENT, text=True)

op("Fingerprint", T=["string"], inputs=[WORDS, "farmhash64"])
op("Fingerprint", T=["string"], inputs=[[[b"a", b"b"], [b"", b"c"]], "farmhash64"])
op("Fingerprint", T=["int32", "double", "bool", "uint8"], inputs=[shape(4, 3), "farmhash64"])
op("Fingerprint", T=["float"], inputs=[shape(0, 3), "farmhash64"])
bad("Fingerprint", T=["float"], inputs=[1.0, "farmhash64"], text=True)
bad("Fingerprint", T=["float"], inputs=[[1.0], "md5"], text=True)

for name in ("StringToHashBucket", "StringToHashBucketFast"):
    for buckets in (1, 10, 2**62):
        op(name, inputs=[WORDS], num_buckets=buckets)
for key in ([0, 0], [123, -456]):
    op("StringToHashBucketStrong", inputs=[WORDS], num_buckets=1000, key=key)
bad("StringToHashBucketStrong", inputs=[WORDS], num_buckets=10, key=[1], text=True)

CUBE = np.array([f"{i:03b}" for i in range(8)], dtype=object).reshape(2, 2, 2)
for axes in ([0], [1, 2], [2, 1], [0, 2], [-1], [], [0, 1, 2], [2, 0, 1]):
    for keep_dims in (False, True):
        op("ReduceJoin", inputs=[CUBE, axes], keep_dims=keep_dims, separator="-")
op("ReduceJoin", inputs=[CUBE, 1])
op("ReduceJoin", inputs=[shape(0, 3), [0]])
for axes in ([3], [-4], [0, 0], [1, -2]):
    bad("ReduceJoin", inputs=[CUBE, axes], text=True)

op("StringJoin", inputs=[[[b"a", b"b"], b"-", [b"c", b"d"]]], separator="")
op("StringJoin", inputs=[[WORDS]], separator=",")
op("StringJoin", inputs=[[b"a", b"b", b""]], separator="::")
bad("StringJoin", inputs=[[[b"a", b"b"], [b"c"]]], text=True)

for segments in (2, 3):
    op("UnsortedSegmentJoin", inputs=[[b"a", b"b", b"", b"d"], [1, 0, 1, 1], segments], separator=",", full=True)
    op("UnsortedSegmentJoin", inputs=[[[b"a", b"b"], [b"c", b"d"]], [1, 0], segments])
op("UnsortedSegmentJoin", inputs=[[[b"a", b"b"], [b"c", b"d"]], [[1, 0], [1, 1]], 2])
for ids, segments in (([1, 2], 2), ([-1, 0], 2), (0, 2), ([0], 2), ([[[0]]], 2)):
    bad("UnsortedSegmentJoin", inputs=[[b"a", b"b"], ids, segments], text=True, Tindices=["int32"], Tnumsegments=["int32"])

TEXTS = [b"", b"abc", b"aaa", b"a.b", b"Abc\nabc", "h\u00e9llo \u4f60".encode(), b"12 ab_9", b"{2}", b"[a]"]
PATTERNS = ["a*", "", "a+|b", "(?i)ABC", ".*", "(?s).*", r"\d+", r"\w+", r"[^a]", r"^abc$", "(?m)^abc$", r"\bab", r"a{2,3}", "[[:alpha:]]+", r"\x61", "h.llo", r"[\d\s]+", "(a)(b)?", r"\{2\}", "a{,2}", r"\pL+", r"\Qa.b\E", "[a-c&&b]", "a??", r"\z", "[]a]"]
for pattern in PATTERNS:
    op("RegexFullMatch", inputs=[TEXTS, pattern])
    op("StaticRegexFullMatch", inputs=[TEXTS], pattern=pattern)
    for rewrite in ("<\\0>", "", "\\\\"):
        op("RegexReplace", inputs=[TEXTS, pattern, rewrite])
    op("StaticRegexReplace", inputs=[TEXTS], pattern=pattern, rewrite="x", replace_global=False)
op("RegexReplace", inputs=[[b"abc"], "(a)(b)", "\\2\\1"])
op("RegexReplace", inputs=[[b"abc"], "a", "\\3"])
for pattern in ("(", ")", "[", "{2}", "a**", "*a", r"\8", "(?P<n", "a{1001}", "(?<=a)b"):
    bad("RegexFullMatch", inputs=[TEXTS, pattern], code=INVALID_ARGUMENT)
bad("RegexFullMatch", inputs=[TEXTS, "["], text=True)
bad("RegexFullMatch", inputs=[TEXTS, ["a"]], text=True)

op("StringFormat", inputs=[[sequence(3), shape()]], T=["int32", "float"], template="a %s b %s c")
for summarize in (-1, 0, 1, 2, 3):
    op("StringFormat", inputs=[[sequence(2, 3, 8)]], T=["int64"], template="{}", placeholder="{}", summarize=summarize)
    op("StringFormat", inputs=[[WORDS]], T=["string"], summarize=summarize)
op("StringFormat", inputs=[[[0.1, 1e10, 1 / 3, -0.0, float("nan")], [0.1, 1e300, 1 / 3]]], T=["float", "double"], template="%s|%s", summarize=-1)
bad("StringFormat", inputs=[[1.0]], T=["float"], template="none", text=True)

for unit in ("BYTE", "UTF8_CHAR"):
    op("StringLength", inputs=[WORDS], unit=unit)
for name in ("StringLower", "StringUpper"):
    for encoding in ("", "utf-8"):
        op(name, inputs=[[b"aBc", "h\u00c9 \u00df \u0130".encode() if encoding == "" else "h\u00c9 \u00df".encode(), b""]], encoding=encoding)
    bad(name, inputs=[WORDS], encoding="latin", text=True)
op("StringStrip", inputs=[[b"", b" a ", b"\t\n\v\f\r x y \v", b"   "]])

for widths, pad, preserve in (([2], 0, False), ([1, 2, 3], -1, False), ([3], 1, False), ([4], 0, True), ([5, 2], 2, True)):
    attrs = dict(separator="|", ngram_widths=widths, left_pad="L", right_pad="R", pad_width=pad, preserve_short_sequences=preserve)
    op("StringNGrams", inputs=[[b"a", b"b", b"c", b"d", b"e"], [0, 3, 3, 4, 5]], **attrs)
attrs = dict(separator="|", ngram_widths=[2], left_pad="", right_pad="", pad_width=0, preserve_short_sequences=False)
op("StringNGrams", inputs=[shape(0), [0, 0]], **attrs)
for splits in ([1, 5], [0, 6], [0, 3, 2, 5], [0, 4]):
    bad("StringNGrams", inputs=[[b"a", b"b", b"c", b"d", b"e"], splits], text=True, **attrs)

PHRASES = [b"", b"a b  c", b"a,b,,c", b" lead", b"a<>b<>", b"one"]
for delimiter in (b"", b" ", b",", b" ,", b"<>"):
    for skip_empty in (False, True):
        op("StringSplit", inputs=[PHRASES, delimiter], skip_empty=skip_empty)
    for maxsplit in (-1, 0, 1, 2):
        op("StringSplitV2", inputs=[PHRASES, delimiter], maxsplit=maxsplit)
for name in ("StringSplit", "StringSplitV2"):
    bad(name, inputs=[[PHRASES], b","], text=True)
    bad(name, inputs=[PHRASES, [b","]], text=True)

NUMERALS = [b"0", b"12", b" 7 ", b"42"]
op("StringToNumber", inputs=[NUMERALS])
op("StringToNumber", out_type=["float", "double"], inputs=[[b"1.5", b"-1e10", b".5", b"1.", b"inf", b"-INF", b"nan", b" 3 ", b"0x1F", b"infinity"]])
op("StringToNumber", out_type=["int32", "int64"], inputs=[[b"-5", b"-2147483648"]])
for text in (b"", b"a", b"1 2", b"1.5", b"99999999999999999999", b"--1", b"1e", b"+"):
    bad("StringToNumber", out_type=["int32", "int64"], inputs=[[text]], code=INVALID_ARGUMENT, text=True)
for text in (b"", b"a", b"1 2", b"--1", b"1e5x"):
    bad("StringToNumber", out_type=["float", "double"], inputs=[[text]], code=INVALID_ARGUMENT, text=True)

ACCENTS = ["h\u00e9llo".encode(), "\u4f60\u597d\u4e16\u754c".encode(), b"plain"]
for pos, length in ((0, 2), (1, 100), (-2, 1), (-3, 2), (2, 0), (1, -1)):
    op("Substr", inputs=[ACCENTS, pos, length])
    op("Substr", inputs=[ACCENTS, pos, length], unit="UTF8_CHAR")
op("Substr", inputs=[ACCENTS, [0, 1, 2], [2, 2, 2]])
op("Substr", inputs=[[[b"abc"], [b"def"]], [0, 1], [1, 2]])
op("Substr", inputs=[b"abcdef", [0, 1, 2], [2, 2, 2]])
for pos in (100, -100):
    for unit in ("BYTE", "UTF8_CHAR"):
        bad("Substr", inputs=[[b"abc"], pos, 1], unit=unit, text=True)
        bad("Substr", inputs=[[b"abc"], [pos], [1]], unit=unit, text=True)
bad("Substr", inputs=[ACCENTS, [0, 1], [2]], text=True)
bad("Substr", inputs=[ACCENTS, [0, 1], [2, 2]], text=True)

MIXED = [b"", b"abc", "h\u00e9 \u4f60 \U0001f600".encode(), b"a\xffb\xe4\xbd", b"\x01\x1f", b"\xf0\x9f\x98\x80\xf0\x9f"]
for errors in ("replace", "ignore"):
    for control in (False, True):
        attrs = dict(input_encoding="UTF-8", errors=errors, replace_control_characters=control)
        op("UnicodeDecode", inputs=[MIXED], **attrs)
        # TensorFlow's own server dies of int32 splits.
        op("UnicodeDecodeWithOffsets", Tsplits=["int64"], inputs=[MIXED], **attrs)
        for encoding in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
            op("UnicodeTranscode", inputs=[MIXED], output_encoding=encoding, **attrs)
for encoding, text in (("UTF-16-BE", b"\x00a\xd8\x3d\xde\x00\xd8\x00\x00b\x00"), ("UTF-16", b"\xff\xfea\x00"), ("UTF-32-BE", b"\x00\x00\x00a\x00\x11\x00\x00"), ("US-ASCII", b"a\x80"), ("ISO-8859-1", b"\xe9"), ("latin1", b"\xe9")):
    op("UnicodeDecodeWithOffsets", Tsplits=["int64"], inputs=[[text]], input_encoding=encoding)
op("UnicodeTranscode", inputs=[MIXED], input_encoding="UTF-8", output_encoding="UTF-8", replacement_char=63)
for name in ("UnicodeDecode", "UnicodeTranscode"):
    more = {"output_encoding": "UTF-8"} if name == "UnicodeTranscode" else {}
    bad(name, inputs=[MIXED], input_encoding="UTF-8", errors="strict", text=True, **more)
    bad(name, inputs=[MIXED], input_encoding="no such", text=True, **more)
    bad(name, inputs=[MIXED], input_encoding="UTF-8", replacement_char=0x110000, text=True, **more)
for encoding in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
    for errors in ("replace", "ignore"):
        op("UnicodeEncode", inputs=[[97, 0x1F600, 0xD800, 0x110000, -1, 0xFFFE, 98], [0, 2, 2, 7]], output_encoding=encoding, errors=errors)
for codes, splits in (([1, 2], [0, 3]), ([1, 2], [1, 2]), ([1, 2, 3], [0, 2, 1, 3]), ([0xD800], [0, 1])):
    bad("UnicodeEncode", inputs=[codes, splits], output_encoding="UTF-8", errors="strict", text=True)

op("UnicodeScript", inputs=[np.arange(0x3200).reshape(2, -1)])
op("UnicodeScript", inputs=[np.arange(0, 0x110000, 37)])
op("UnicodeScript", inputs=[[-1, 0x10FFFF, 0x110000, 2147483647]])
op("UnicodeScript", inputs=[65])
