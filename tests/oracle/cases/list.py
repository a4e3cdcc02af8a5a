"""Lists, maps, optionals and arrays of tensors. Their handles cannot be fetched, so that each case is a small graph."""

from tests.oracle.build import Step
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """EmptyTensorList TensorListReserve TensorListPushBack TensorListPopBack TensorListSetItem TensorListGetItem TensorListLength
TensorListElementShape TensorListStack TensorListGather TensorListScatter TensorListScatterV2 TensorListScatterIntoExistingList
TensorListFromTensor TensorListConcat TensorListConcatV2 TensorListSplit TensorListResize TensorListConcatLists
TensorListPushBackBatch OptionalNone OptionalFromValue OptionalHasValue OptionalGetValue EmptyTensorMap TensorMapSize
TensorMapInsert TensorMapLookup TensorMapErase TensorMapHasKey TensorMapStackKeys TensorArrayV3 TensorArrayWriteV3
TensorArrayReadV3 TensorArrayGatherV3 TensorArrayScatterV3 TensorArrayConcatV3 TensorArraySplitV3 TensorArraySizeV3
TensorArrayCloseV3 TensorArrayGradV3 TensorArrayGradWithShape"""
ELEMENTS = kernel_types("TensorListStack", EVERY, "element_dtype")
ITEMS = kernel_types("TensorArrayWriteV3", EVERY)


def any_type(*ops):
    return [(op, lambda types: {}) for op in ops]


def of_element(*ops):
    return [(op, lambda types: {"element_dtype": types["T"]}) for op in ops]


def ints(b, value):
    return b.const(value, "int32")


def some(T, *dims, seed=1):
    return shape(*dims)(np.random.default_rng(seed), T)


def fed(b, feeds, T, *dims, seed=1):
    ref = b.placeholder(T)
    feeds.append((ref, some(T, *dims, seed=seed)))
    return ref


def items(b, T):
    feeds = []
    known = ints(b, [2, -1])
    x, y = fed(b, feeds, T, 2, 3), fed(b, feeds, T, 2, 3, seed=2)
    empty = b.node("EmptyTensorList", known, ints(b, -1), element_dtype=T)
    one = b.node("TensorListPushBack", empty, x)
    two = b.node("TensorListPushBack", one, y)
    changed = b.node("TensorListSetItem", two, ints(b, 0), y)
    popped = b.add("TensorListPopBack", two, known, element_dtype=T)
    fetches = [
        b.node("TensorListGetItem", two, ints(b, 0), known, element_dtype=T),
        b.node("TensorListGetItem", changed, ints(b, 0), known, element_dtype=T),
        popped[1],
        b.node("TensorListLength", popped[0]),
        b.node("TensorListLength", two),
        b.node("TensorListStack", two, known, element_dtype=T),
        b.node("TensorListElementShape", two, shape_type="int64"),
    ]
    return [Step(fetches, feeds=feeds)] * 2


program(
    "items", items, T=ELEMENTS,
    ops=of_element("TensorListPopBack", "TensorListGetItem", "TensorListStack")
    + any_type("EmptyTensorList", "TensorListPushBack", "TensorListSetItem", "TensorListLength", "TensorListElementShape"),
)


def reserved(b, T):
    """What was never written is zero, if its shape is known from somewhere."""
    feeds = []
    x = fed(b, feeds, T, 3)
    unknown = ints(b, -1)
    reserved = b.node("TensorListReserve", unknown, ints(b, 3), element_dtype=T)
    written = b.node("TensorListSetItem", reserved, ints(b, 1), x)
    longer = b.node("TensorListResize", written, ints(b, 5))
    fetches = [
        b.node("TensorListGetItem", written, ints(b, 0), unknown, element_dtype=T),
        b.node("TensorListGetItem", reserved, ints(b, 0), ints(b, [2]), element_dtype=T),
        b.node("TensorListStack", longer, unknown, element_dtype=T),
        b.node("TensorListStack", b.node("TensorListResize", longer, ints(b, 2)), unknown, element_dtype=T),
        b.node("TensorListGather", longer, ints(b, [4, 1, 1]), unknown, element_dtype=T),
        b.node("TensorListElementShape", written, shape_type="int32"),
    ]
    return [Step(fetches, feeds=feeds)]


program(
    "reserved", reserved, T=ELEMENTS, ops=of_element("TensorListGather") + any_type("TensorListReserve", "TensorListResize"),
)


def pieces(b, T):
    feeds = []
    x = fed(b, feeds, T, 4, 2)
    shape2, any2 = ints(b, [2]), ints(b, [-1, 2])
    rows = b.node("TensorListFromTensor", x, shape2)
    split = b.node("TensorListSplit", x, any2, b.const([1, 0, 3], "int64"))
    placed = b.node("TensorListScatter", x, ints(b, [5, 0, 1, 2]), shape2)
    sized = b.node("TensorListScatterV2", x, ints(b, [3, 0, 1, 2]), shape2, ints(b, 6))
    into = b.node("TensorListScatterIntoExistingList", rows, x, ints(b, [3, 2, 1, 0]))
    both = b.node("TensorListConcatLists", rows, placed, element_dtype=T)
    joined = b.add("TensorListConcatV2", split, any2, b.const([], "int64"), element_dtype=T)
    first = b.add("TensorListConcat", split, element_dtype=T, element_shape=None)
    handles = b.node("Pack", [rows, placed])
    pushed = b.node("Unpack", b.node("TensorListPushBackBatch", handles, fed(b, feeds, T, 2, 2, seed=4)), num=2)
    fetches = [b.node("TensorListStack", handle, shape2, element_dtype=T) for handle in (rows, placed, sized, into, both, pushed)]
    return [Step([*fetches, joined[0], joined[1], first[0], first[1]], feeds=feeds)]


program(
    "pieces", pieces, T=ELEMENTS,
    ops=of_element(
        "TensorListFromTensor", "TensorListSplit", "TensorListScatter", "TensorListScatterV2", "TensorListScatterIntoExistingList",
        "TensorListConcat", "TensorListConcatV2", "TensorListPushBackBatch",
    )
    + any_type("TensorListConcatLists"),
)


def leading(b):
    """Missing elements have the sizes that leading_dims gives."""
    reserved = b.node("TensorListReserve", ints(b, -1), ints(b, 3), element_dtype="float")
    one = b.node("TensorListSetItem", reserved, ints(b, 1), b.const([[1.0, 2.0]]))
    concat = b.add("TensorListConcatV2", one, ints(b, [-1, 2]), b.const([2, 7, 1], "int64"), element_dtype="float")
    return [Step([concat[0], concat[1]])]


program("leading", leading, ops=[])


def wrong(b, case):
    """One thing that each op refuses."""
    unknown, two = ints(b, -1), ints(b, [2])
    x = b.const([1.0, 2.0])
    empty = b.node("EmptyTensorList", two, ints(b, 1), element_dtype="float")
    one = b.node("TensorListPushBack", empty, x)
    float_ = {"element_dtype": "float"}
    reserved = b.node("TensorListReserve", unknown, ints(b, 2), **float_)
    cases = {
        "full": lambda: b.node("TensorListLength", b.node("TensorListPushBack", one, x)),
        "shape": lambda: b.node("TensorListLength", b.node("TensorListPushBack", empty, b.const(1.0))),
        "type": lambda: b.node("TensorListLength", b.node("TensorListPushBack", empty, ints(b, [1, 2]))),
        "pop": lambda: b.add("TensorListPopBack", empty, two, **float_)[1],
        "get": lambda: b.node("TensorListGetItem", one, ints(b, 1), two, **float_),
        "get missing": lambda: b.node("TensorListGetItem", reserved, ints(b, 1), unknown, **float_),
        "get type": lambda: b.node("TensorListGetItem", one, ints(b, 0), two, element_dtype="int32"),
        "set": lambda: b.node("TensorListLength", b.node("TensorListSetItem", one, ints(b, 1), x)),
        "set shape": lambda: b.node("TensorListLength", b.node("TensorListSetItem", one, ints(b, 0), b.const(1.0))),
        "stack": lambda: b.node("TensorListStack", empty, unknown, element_dtype="int32"),
        "stack nothing": lambda: b.node("TensorListStack", reserved, unknown, **float_),
        "stack count": lambda: b.node("TensorListStack", one, two, num_elements=2, **float_),
        "gather": lambda: b.node("TensorListGather", reserved, ints(b, [2]), two, **float_),
        "gather nothing": lambda: b.node("TensorListGather", reserved, b.const([], "int32"), unknown, **float_),
        "reserve": lambda: b.node("TensorListLength", b.node("TensorListReserve", unknown, ints(b, -1), **float_)),
        "resize": lambda: b.node("TensorListLength", b.node("TensorListResize", one, ints(b, -1))),
        "scalar": lambda: b.node("TensorListLength", b.node("TensorListFromTensor", b.const(1.0), unknown)),
        "from": lambda: b.node("TensorListLength", b.node("TensorListFromTensor", x, two)),
        "split": lambda: b.node("TensorListLength", b.node("TensorListSplit", x, ints(b, [-1]), b.const([1], "int64"))),
        "split far": lambda: b.node("TensorListLength", b.node("TensorListSplit", x, ints(b, [-1]), b.const([3], "int64"))),
        "split scalar": lambda: b.node("TensorListLength", b.node("TensorListSplit", x, ints(b, []), b.const([2], "int64"))),
        "scatter": lambda: b.node("TensorListLength", b.node("TensorListScatterV2", x, ints(b, [0, 3]), ints(b, []), ints(b, 3))),
        "scatter negative": lambda: b.node("TensorListLength", b.node("TensorListScatterV2", x, ints(b, [0, -3]), ints(b, []), ints(b, 3))),
        "concat scalars": lambda: b.add("TensorListConcatV2", b.node("TensorListFromTensor", x, ints(b, [])), unknown, b.const([], "int64"), **float_)[0],
        "no list": lambda: b.node("TensorListLength", b.node("OptionalNone")),
        "shapes": lambda: b.node("TensorListLength", b.node("EmptyTensorList", ints(b, -2), ints(b, 1), element_dtype="float")),
    }
    return [Step([cases[case]()])]


program(
    "wrong list", wrong, fails=True,
    case=[
        "full", "shape", "type", "pop", "get", "get missing", "get type", "set", "set shape", "stack", "stack nothing", "stack count",
        "gather", "gather nothing", "reserve", "resize", "scalar", "from", "split", "split far", "split scalar", "scatter",
        "scatter negative", "concat scalars", "no list", "shapes",
    ],
)


def sums(b, T):
    """Lists are added element by element, and have zeros."""
    feeds = []
    x = fed(b, feeds, T, 3, 2)
    rows = b.node("TensorListFromTensor", x, ints(b, [2]))
    other = b.node("TensorListFromTensor", b.node("ReverseV2", x, ints(b, [0])), ints(b, [2]))
    total, zeros = b.node("AddN", [rows, other, rows]), b.node("ZerosLike", rows)
    return [Step([b.node("TensorListStack", handle, ints(b, [2]), element_dtype=T) for handle in (total, zeros)], feeds=feeds)]


program("sums of lists", sums, T=kernel_types("AddN", NUMBERS), ulp=2, ops=[])


def optional(b, T):
    feeds = []
    x = fed(b, feeds, T, 2)
    value = b.node("OptionalFromValue", [x, ints(b, 7)])
    got = b.add("OptionalGetValue", value, output_types=[T, "int32"], output_shapes=[[2], None])
    total = b.add("OptionalGetValue", b.node("ZerosLike", b.node("OptionalFromValue", [ints(b, [3, 4])])), output_types=["int32"], output_shapes=[[2]])
    has = [b.node("OptionalHasValue", value), b.node("OptionalHasValue", b.node("OptionalNone"))]
    return [Step([got[0], got[1], total[0], *has], feeds=feeds)]


program("optional", optional, T=EVERY, ops=any_type("OptionalNone", "OptionalFromValue", "OptionalHasValue", "OptionalGetValue"))


def wrong_optional(b, types, shapes, full):
    value = b.node("OptionalFromValue", [b.const([1.0, 2.0])]) if full else b.node("OptionalNone")
    return [Step([b.add("OptionalGetValue", value, output_types=types.split(), output_shapes=[s and [int(s)] for s in shapes.split(",")])[0]])]


for types, shapes, full in (("int32", "2", True), ("float", "3", True), ("float float", "2,2", True), ("float", "2", False)):
    program("wrong optional", wrong_optional, types=types, shapes=shapes, full=full, fails=True, code=INVALID_ARGUMENT)


def entries(b, T):
    feeds = []
    key, other, value = fed(b, feeds, T, 2), fed(b, feeds, T, 3, seed=2), b.const([5.0])
    one = b.node("TensorMapInsert", b.node("EmptyTensorMap"), key, value)
    two = b.node("TensorMapInsert", one, other, b.const([6.0]))
    again = b.node("TensorMapInsert", two, key, b.const([7.0]))
    left = b.node("TensorMapErase", two, key, value_dtype="float")
    look = {"value_dtype": "float"}
    fetches = [b.node("TensorMapSize", handle) for handle in (one, two, again, left)]
    fetches += [b.node("TensorMapLookup", two, key, **look), b.node("TensorMapLookup", again, key, **look)]
    fetches += [b.node("TensorMapHasKey", left, key), b.node("TensorMapHasKey", left, other), b.node("TensorMapStackKeys", one, key_dtype=T)]
    return [Step(fetches, feeds=feeds)]


program(
    "entries", entries, T=["float", "int32", "int64", "string", "double"],
    ops=any_type("EmptyTensorMap", "TensorMapSize", "TensorMapInsert", "TensorMapLookup", "TensorMapErase", "TensorMapHasKey", "TensorMapStackKeys"),
)


def wrong_map(b, case):
    empty, key = b.node("EmptyTensorMap"), b.const(1.0)
    cases = {
        "lookup": lambda: b.node("TensorMapLookup", empty, key, value_dtype="float"),
        "erase": lambda: b.node("TensorMapSize", b.node("TensorMapErase", empty, key, value_dtype="float")),
        "keys": lambda: b.node("TensorMapStackKeys", empty, key_dtype="float"),
        "no map": lambda: b.node("TensorMapSize", b.node("OptionalNone")),
    }
    return [Step([cases[case]()])]


program("wrong map", wrong_map, case=["lookup", "erase", "keys", "no map"], fails=True, code=INVALID_ARGUMENT)


def array(b, size, T, **attrs):
    return b.add("TensorArrayV3", ints(b, size), dtype=T, **attrs)


def written(b, T):
    feeds = []
    ta = array(b, 2, T, clear_after_read=False)
    x, y = fed(b, feeds, T, 2, 3), fed(b, feeds, T, 2, 3, seed=2)
    flow = b.node("TensorArrayWriteV3", ta[0], ints(b, 1), x, ta[1])
    flow = b.node("TensorArrayWriteV3", ta[0], ints(b, 0), y, flow)
    fetches = [
        b.node("TensorArrayReadV3", ta[0], ints(b, 1), flow, dtype=T),
        b.node("TensorArrayReadV3", ta[0], ints(b, 1), flow, dtype=T),
        b.node("TensorArraySizeV3", ta[0], flow),
    ]
    if T in kernel_types("TensorArrayGatherV3", EVERY, "dtype"):
        fetches.append(b.node("TensorArrayGatherV3", ta[0], ints(b, [1, 0, 1]), flow, dtype=T))
    if T in kernel_types("TensorArrayConcatV3", EVERY, "dtype"):
        fetches += list(b.add("TensorArrayConcatV3", ta[0], flow, dtype=T).outputs)
    return [Step(fetches, feeds=feeds)] * 2


def of_dtype(*ops):
    return [(op, lambda types: {"dtype": types["T"]}) for op in ops]


program(
    "written", written, T=ITEMS,
    ops=["TensorArrayWriteV3", *of_dtype("TensorArrayReadV3", "TensorArrayGatherV3", "TensorArrayConcatV3"), *any_type("TensorArrayV3", "TensorArraySizeV3")],
)


def quantized_array(b, T):
    """Nothing can be written of these types, but nothing can be read too."""
    ta = array(b, 0, T, element_shape=[2])
    concat = b.add("TensorArrayConcatV3", ta[0], ta[1], dtype=T, element_shape_except0=[3])
    return [Step([b.node("TensorArrayGatherV3", ta[0], b.const([], "int32"), ta[1], dtype=T, element_shape=[2]), concat[0], concat[1]])]


program("empty array", quantized_array, T=kernel_types("TensorArrayConcatV3", EVERY, "dtype"), ops=of_dtype("TensorArrayGatherV3", "TensorArrayConcatV3"))


def scattered(b, T):
    feeds = []
    x = fed(b, feeds, T, 4, 2)
    ta, parts = array(b, 2, T, dynamic_size=True), array(b, 3, T)
    flow = b.node("TensorArrayScatterV3", ta[0], ints(b, [5, 0, 1, 3]), x, ta[1])
    part = b.node("TensorArraySplitV3", parts[0], x, b.const([1, 0, 3], "int64"), parts[1])
    fetches = [b.node("TensorArrayReadV3", ta[0], ints(b, i), flow, dtype=T) for i in (5, 0, 1, 3)]
    fetches += [b.node("TensorArrayReadV3", parts[0], ints(b, i), part, dtype=T) for i in range(3)]
    return [Step([*fetches, b.node("TensorArraySizeV3", ta[0], flow)], feeds=feeds)]


program("scattered", scattered, T=ITEMS, ops=["TensorArrayScatterV3", "TensorArraySplitV3"])


def gradients(b, T, shape):
    """An array of gradients adds up what is written to one index, and is zero where nothing is."""
    feeds = []
    x = fed(b, feeds, T, 2)
    ta = array(b, 3, T)
    flow = ta[1]
    for i in range(3):
        flow = b.node("TensorArrayWriteV3", ta[0], ints(b, i), x, flow)
    if shape:
        grad = b.add("TensorArrayGradWithShape", ta[0], flow, ints(b, [2]), source="s")
        dx = fed(b, feeds, T, 2, 2, seed=3)
    else:
        grad = b.add("TensorArrayGradV3", ta[0], flow, source="s")
        dx = fed(b, feeds, T, 2, seed=3)
    down = b.node("TensorArrayWriteV3", grad[0], ints(b, 1), dx, grad[1])
    down = b.node("TensorArrayWriteV3", grad[0], ints(b, 1), dx, down)
    reads = [b.node("TensorArrayReadV3", grad[0], ints(b, i), down, dtype=T) for i in range(3)]
    return [Step(reads, feeds=feeds)]


program("gradients", gradients, T=NUMBERS, shape=[False, True], ulp=2, ops=any_type("TensorArrayGradV3", "TensorArrayGradWithShape"))


def wrong_array(b, case):
    ta, x = array(b, 2, "float", element_shape=[2]), b.const([1.0, 2.0])
    flow = b.node("TensorArrayWriteV3", ta[0], ints(b, 0), x, ta[1])
    closed = b.add("TensorArrayCloseV3", ta[0], control=[flow.node])
    plain = array(b, 2, "float")

    def write(index, value, flow=flow):
        return b.node("TensorArrayWriteV3", ta[0], ints(b, index), value, flow)

    def read(index, flow=flow, dtype="float"):
        return b.node("TensorArrayReadV3", ta[0], ints(b, index), flow, dtype=dtype)

    once = read(0)
    cases = {
        "twice": lambda: write(0, x),
        "far": lambda: write(2, x),
        "negative": lambda: write(-1, x),
        "type": lambda: write(1, ints(b, [1, 2])),
        "shape": lambda: write(1, b.const(1.0)),
        "index": lambda: write([1, 1], x),
        "read far": lambda: read(2),
        "read type": lambda: read(0, dtype="int32"),
        "read twice": lambda: b.add("TensorArrayReadV3", ta[0], ints(b, 0), flow, dtype="float", control=[once.node])[0],
        "read missing": lambda: b.node("TensorArrayReadV3", plain[0], ints(b, 0), plain[1], dtype="float"),
        "closed": lambda: b.add("TensorArrayReadV3", ta[0], ints(b, 0), flow, dtype="float", control=[closed])[0],
        "size": lambda: array(b, -1, "float")[1],
        "size shape": lambda: array(b, [1], "float")[1],
        "scatter": lambda: b.node("TensorArrayScatterV3", plain[0], ints(b, [0, 2]), x, plain[1]),
        "scatter length": lambda: b.node("TensorArrayScatterV3", plain[0], ints(b, [0]), x, plain[1]),
        "split": lambda: b.node("TensorArraySplitV3", plain[0], x, b.const([1, 1, 0], "int64"), plain[1]),
        "split sum": lambda: b.node("TensorArraySplitV3", plain[0], x, b.const([1, 2], "int64"), plain[1]),
        "gather nothing": lambda: b.node("TensorArrayGatherV3", plain[0], b.const([], "int32"), plain[1], dtype="float"),
        "gather shape": lambda: b.node("TensorArrayGatherV3", ta[0], ints(b, [0]), flow, dtype="float", element_shape=[3]),
    }
    return [Step([cases[case]()])]


program(
    "wrong array", wrong_array, fails=True, ops=[],
    case=[
        "twice", "far", "negative", "type", "shape", "index", "read far", "read type", "read twice", "read missing", "closed", "size",
        "size shape", "scatter", "scatter length", "split", "split sum", "gather nothing", "gather shape",
    ],
)


def close(b):
    ta = array(b, 2, "float")
    closed = b.add("TensorArrayCloseV3", ta[0])
    return [Step([b.add("Const", dtype="float", value=dtypes.to_proto(as_array(1.0, "float"), "float"), control=[closed])[0]])]


program("close", close, ops=any_type("TensorArrayCloseV3"))
