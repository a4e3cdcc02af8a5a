"""The language of the case tables: `op`, `bad` and `program` each add a row, and a row expands over dtypes.

    op("Add", inputs=[shape(2, 3), shape(3)])            every dtype that TensorFlow's CPU kernels have
    op("Log", T=FLOATS, inputs=[special()], ulp=4)       these dtypes only, within 4 units in the last place
    op("Sum", Tidx=["int32"], inputs=[shape(2, 3), [1]]) one more attribute fixed
    bad("MatMul", T=["float"], inputs=[shape(2, 3), shape(2, 3)], code=INVALID_ARGUMENT)
    program("counter", build, dtype=INTS, ops=["AssignAdd"])   a graph made by a function

A keyword that names a type attribute takes a dtype or a list of them; any other keyword is an attribute of the node.
A row without dtypes covers every dtype of every attribute at least once; with `full=True`, every combination.
"""

import collections
import dataclasses
import itertools
import sys
import zlib

import numpy as np
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow.python.framework import op_def_registry

from tests.oracle import dtypes
from tests.oracle.build import Builder, Step, as_array
from tests.oracle.dtypes import (  # noqa: F401  for the tables
    COMPLEX,
    EVERY,
    FLOATS,
    INTS,
    NUMBERS,
    PLAIN,
    QUANTIZED,
    SIGNED,
    UNSIGNED,
)

INVALID_ARGUMENT = error_codes_pb2.INVALID_ARGUMENT
NOT_FOUND = error_codes_pb2.NOT_FOUND
OUT_OF_RANGE = error_codes_pb2.OUT_OF_RANGE
FAILED_PRECONDITION = error_codes_pb2.FAILED_PRECONDITION
UNIMPLEMENTED = error_codes_pb2.UNIMPLEMENTED
INTERNAL = error_codes_pb2.INTERNAL
ABORTED = error_codes_pb2.ABORTED


@dataclasses.dataclass
class Check:
    """How the two answers of a case are compared."""

    fails: bool = False
    either: bool = False
    code: int | None = None
    text: bool = False
    ulp: float = 0
    abs_ulp: float = 0
    rtol: float = 0
    atol: float = 0
    shapes_only: bool = False
    zeros: bool = False
    more: bool = False


@dataclasses.dataclass
class Case:
    """One graph to run on both servers. `build(prefix)` returns (GraphDef, list of Step)."""

    family: str
    op: str
    label: str
    where: str
    build: object
    check: Check
    covers: list


ROWS = []
"""Functions that return the cases of a row, in the order of the tables."""

_family = ["?"]
_numbers = collections.defaultdict(itertools.count)


def family(name):
    """Says which family the rows that follow belong to."""
    _family[0] = name


def op(name, inputs=(), **options):
    """A row for one op; see the module's text. Other options:

    const: inputs become Const nodes (True, or a list of input positions). runs: how many steps to run in one session.
    full: every dtype combination. ulp (relative) and abs_ulp (absolute): tolerance for inexact outputs in multiples of
    the dtype's epsilon; rtol, atol: the same as plain numbers; exact without any of them.
    either: the case may fail, if it does so on both servers with one code.
    zeros: 0.0 and -0.0 count as equal. shapes_only: compare dtype and shape, not values. fetch: output positions to fetch. text: compare the error text.
    """
    _row(name, inputs, options, Check(**_take(options, "ulp", "abs_ulp", "rtol", "atol", "shapes_only", "either", "zeros")))


def bad(name, inputs=(), code=None, text=False, more=False, **options):
    """A row whose cases must fail on both servers with one code (`code`, where given) and, with text, one message.

    more: what TensorFlow's CPU kernel merely lacks, ours may have.
    """
    _row(name, inputs, options, Check(fails=True, code=code, text=text, more=more))


def program(name, build, ops=(), fails=False, code=None, text=False, **options):
    """A row for a graph of several nodes: `build(b, **dtypes)` adds nodes to a Builder and returns its Steps.

    Keywords with a list of dtypes are expanded and handed to `build`. `ops` are the ops whose dtypes it covers: names,
    or pairs of a name and a function from the keywords to that op's attributes.
    """
    check = Check(fails=fails, code=code, text=text, **_take(options, "ulp", "abs_ulp", "rtol", "atol", "shapes_only", "either", "zeros"))
    where = _caller()
    family_name = _family[0]

    def expand():
        keys = list(options)
        for values in itertools.product(*(_as_list(options[key]) for key in keys)):
            types = dict(zip(keys, values, strict=True))

            def make(prefix, types=types):
                b = Builder(prefix)
                steps = build(b, **types)
                return b.graph, steps

            covers = [(o, types) if isinstance(o, str) else (o[0], o[1](types)) for o in ops]
            label = f"{name}[{_text(types)}]"
            yield Case(family_name, _first_op(ops, name), label, where, make, check, covers)

    ROWS.append(expand)


def kernel_types(name, among, attr="T"):
    """The dtypes in `among` for which the op has a CPU kernel."""
    have = {row.get(attr) for row in dtypes.kernels()[name]}
    return [dtype for dtype in among if dtype in have]


def _first_op(ops, name):
    if not ops:
        return name
    return ops[0] if isinstance(ops[0], str) else ops[0][0]


def _take(options, *names):
    return {name: options.pop(name) for name in names if name in options}


def _as_list(value):
    return value if isinstance(value, list) else [value]


def _text(pairs):
    return ",".join(f"{key}={getattr(value, 'text', value)}" for key, value in pairs.items())


def _caller():
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"


def _row(name, inputs, options, check):
    where, family_name, number = _caller(), _family[0], next(_numbers[name])
    options = dict(options)
    setup = {
        "const": options.pop("const", False),
        "runs": options.pop("runs", 1),
        "fetch": options.pop("fetch", None),
    }
    full = options.pop("full", False)

    def expand():
        definition = op_def_registry.get(name)
        if definition is None:
            raise ValueError(f"{where}: no op {name}")
        for types, attrs in _combinations(definition, options, full, where):
            seed = zlib.crc32(f"{name} {number} {_text(types)}".encode())
            label = f"{name}[{_text(types)}]({_describe(inputs)}{_describe_attrs(attrs)})"

            def make(prefix, types=types, attrs=attrs, seed=seed):
                return _one_op(definition, inputs, types, attrs, setup, prefix, seed)

            yield Case(family_name, name, label, where, make, check, [] if check.fails and not check.more else [(name, types)])

    ROWS.append(expand)


def _describe(inputs):
    def one(value):
        if isinstance(value, list) and value and callable(value[0]):
            return "[" + " ".join(one(v) for v in value) + "]"
        text = getattr(value, "text", None) or (f"array{value.shape}" if isinstance(value, np.ndarray) else repr(value))
        return text.replace("\n", " ")[:40]

    return ", ".join(one(value) for value in inputs)


def _describe_attrs(attrs):
    shown = _text({k: v for k, v in attrs.items() if not hasattr(v, "tensor_shape")})
    return f"; {shown[:60]}" if shown else ""


def _combinations(definition, options, full, where):
    """Yields (type attributes, other attributes) of a row."""
    kinds = {attr.name: attr.type for attr in definition.attr}
    for key in options:
        if key.rstrip("_") not in kinds:
            raise ValueError(f"{where}: {definition.name} has no attribute {key}")
    options = {key.rstrip("_"): value for key, value in options.items()}
    attrs = {key: value for key, value in options.items() if kinds[key] != "type"}
    wanted = {key: _as_list(value) for key, value in options.items() if kinds[key] == "type"}
    rows = [row for row in dtypes.kernels().get(definition.name, [{}]) if _feedable(row) and _matches(row, wanted)]
    if not rows:
        raise ValueError(f"{where}: no CPU kernel of {definition.name} for {wanted}")
    if not full:
        rows = _cover(rows)
    for row in rows:
        row = {key: value for key, value in row.items() if kinds.get(key) == "type"}
        free = {}
        for attr in definition.attr:
            if attr.type != "type" or attr.name in row:
                continue
            if attr.name in wanted:
                free[attr.name] = wanted[attr.name]
            elif attr.HasField("default_value"):
                free[attr.name] = [dtypes.name_of(attr.default_value.type)]
            elif attr.allowed_values.list.type:
                free[attr.name] = [dtypes.name_of(attr.allowed_values.list.type[0])]
            else:
                free[attr.name] = ["float"]
        for values in itertools.product(*free.values()):
            yield {**row, **dict(zip(free, values, strict=True))}, attrs


def _feedable(row):
    return not any(value in dtypes.UNFEEDABLE for value in row.values())


def _matches(row, wanted):
    return all(row[key] in values for key, values in wanted.items() if key in row)


def _cover(rows):
    """Rows that show every value of every attribute at least once."""
    chosen, seen = [], set()
    for i, row in enumerate(rows):
        # Start at a moving place, so that secondary attributes vary with the first one.
        row = rows[(i * 7) % len(rows)] if len(rows) % 7 else row
        pairs = set(row.items())
        if not pairs <= seen or not pairs:
            chosen.append(row)
            seen |= pairs
    return chosen


def _one_op(definition, inputs, types, attrs, setup, prefix, seed):
    b = Builder(prefix)
    rng = np.random.default_rng(seed)
    feeds = []
    position = itertools.count()

    def add(value, dtype):
        array = value(rng, dtype) if callable(value) else as_array(value, dtype)
        as_const = setup["const"]
        if isinstance(as_const, list):
            as_const = next(position) in as_const
        if as_const:
            return b.const(array, dtype)
        ref = b.placeholder(dtype)
        feeds.append((ref, array))
        return ref

    attrs = dict(attrs)
    arguments = []
    if len(inputs) != len(definition.input_arg):
        raise ValueError(f"{definition.name} takes {len(definition.input_arg)} inputs, not {len(inputs)}")
    for argument, value in zip(definition.input_arg, inputs, strict=True):
        if argument.type_list_attr:
            arguments.append([add(v, d) for v, d in zip(value, attrs[argument.type_list_attr], strict=True)])
            continue
        dtype = types[argument.type_attr] if argument.type_attr else dtypes.name_of(argument.type)
        if argument.number_attr:
            arguments.append([add(v, dtype) for v in value])
        else:
            arguments.append(add(value, dtype))
    node = b.add(definition.name, *arguments, **types, **attrs)
    if setup["fetch"] is not None:
        fetches = [node.outputs[i] for i in setup["fetch"]]
    else:
        fetches = [ref for ref in node.outputs if ref.dtype not in dtypes.UNFEEDABLE]
    step = Step(fetches=fetches, targets=[] if fetches else [str(node)], feeds=feeds)
    return b.graph, [step] * setup["runs"]
