"""Control flow in the form of single ops: switches, merges, loops, assertions."""

from tests.oracle.build import Ref, Step
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = "Switch Merge Enter Exit NextIteration LoopCond NoOp Assert Print"
PASSED = kernel_types("Switch", EVERY)
NONE = lambda types: {}  # noqa: E731  these kernels are registered without a dtype


def branch(b, T, taken):
    """Switch and Merge: the merged value, its index, and what each side made of it."""
    data, pred = b.placeholder(T), b.placeholder("bool")
    switch = b.add("Switch", data, pred)
    false, true = b.node("Identity", switch[0]), b.node("Pack", [switch[1], switch[1]])
    merge = b.add("Merge", [false, true])
    feeds = [(data, shape(2, 3)(np.random.default_rng(1), T)), (pred, np.array(taken))]
    return [Step([merge[0], merge[1]], feeds=feeds)]


program("branch", branch, T=kernel_types("Pack", PASSED), taken=[False, True], ops=[("Switch", lambda t: {"T": t["T"]}), ("Merge", NONE)])


def alive(b, T, taken):
    data = b.placeholder(T)
    switch = b.add("Switch", data, b.const(taken, "bool"))
    return [Step([switch[int(taken)]], feeds=[(data, shape(3)(np.random.default_rng(1), T))])]


program("alive", alive, T=PASSED, taken=[False, True], ops=[("Switch", lambda t: {"T": t["T"]})])


def dead(b, taken, depth):
    """Fetching what was not computed is an error, however far from the Switch."""
    switch = b.add("Switch", b.const(1.0), b.const(taken, "bool"))
    value = switch[int(not taken)]
    for _ in range(depth):
        value = b.node("Neg", value)
    return [Step([value])]


program("dead", dead, taken=[False, True], depth=[0, 1, 5], ops=["Switch"], fails=True, code=INTERNAL)


def bad_pred(b):
    return [Step([b.add("Switch", b.const(1.0), b.const([True, False], "bool"))[0]])]


program("vector as pred", bad_pred, ops=["Switch"], fails=True, code=INVALID_ARGUMENT, text=True)


def dead_control(b, taken):
    """A node with a control edge from a dead node does not run."""
    switch = b.add("Switch", b.const(1.0), b.const(taken, "bool"))
    marks = [b.add("NoOp", control=[b.add("Identity", switch[side])]) for side in (0, 1)]
    values = [b.add("Const", dtype="int32", value=dtypes.to_proto(as_array(side, "int32"), "int32"), control=[marks[side]]) for side in (0, 1)]
    merge = b.add("Merge", [values[0][0], values[1][0]])
    return [Step([merge[0], merge[1]])]


program("control edge of a dead node", dead_control, taken=[False, True], ops=[("NoOp", NONE), ("Merge", NONE)])


def nested_branch(b, outer, inner):
    data, p, q = b.const(5.0), b.const(outer, "bool"), b.const(inner, "bool")
    first = b.add("Switch", data, p)
    q_inside = b.add("Switch", q, p)
    second = b.add("Switch", first[1], q_inside[1])
    joined = b.add("Merge", [b.node("Neg", second[0]), b.node("Square", second[1])])
    merge = b.add("Merge", [first[0], joined[0]])
    return [Step([merge[0], merge[1]])]


program("nested branch", nested_branch, outer=[False, True], inner=[False, True], ops=[("Switch", NONE), ("Merge", NONE)])


def loop(b, T, times, parallel=10, invariant=False):
    """for i in range(times): value passes round once, and i grows by one."""
    frame = {"frame_name": f"{b.prefix}frame", "parallel_iterations": parallel}
    start = b.const(0, "int32")
    data = b.placeholder(T)
    enter_i, enter_v = b.node("Enter", start, **frame), b.node("Enter", data, **frame)
    limit = b.node("Enter", b.const(times, "int32"), is_constant=True, **frame)
    next_i, next_v = Ref(f"{b.prefix}next_i", 0, "int32"), Ref(f"{b.prefix}next_v", 0, T)
    merge_i, merge_v = b.add("Merge", [enter_i, next_i]), b.add("Merge", [enter_v, next_v])
    cond = b.node("LoopCond", b.node("Less", merge_i[0], limit))
    switch_i, switch_v = b.add("Switch", merge_i[0], cond), b.add("Switch", merge_v[0], cond)
    one = b.add("Const", dtype="int32", value=dtypes.to_proto(as_array(1, "int32"), "int32"), control=[switch_i_body(b, switch_i)])
    b.add("NextIteration", b.node("Add", switch_i[1], one[0]), name=next_i.node)
    body = b.node("Identity", switch_v[1])
    if invariant:
        body = b.node("AddV2", body, b.node("Enter", data, is_constant=True, **frame))
    b.add("NextIteration", body, name=next_v.node)
    out_i, out_v = b.node("Exit", switch_i[0]), b.node("Exit", switch_v[0])
    return [Step([out_i, out_v], feeds=[(data, shape(2, 3)(np.random.default_rng(1), T))])] * 2


def switch_i_body(b, switch):
    return b.add("Identity", switch[1])


rounds = [("Enter", NONE), ("Exit", NONE), ("NextIteration", NONE), ("LoopCond", NONE), ("Merge", NONE)]
program("loop", loop, T=[kind for kind in PASSED if kind not in QUANTIZED], times=3, ops=rounds)
for times in (0, 1, 2, 10, 1000):
    program("loop", loop, T=["float", "string"], times=times, ops=rounds)
for parallel in (1, 2, 100):
    program("loop", loop, T=["int32", "float"], times=57, parallel=parallel, invariant=True, ops=rounds)


def assertion(b, condition, data, kinds, summarize=3):
    node = b.add("Assert", b.const(condition, "bool"), [b.const(v, k) for v, k in zip(data, kinds, strict=True)], summarize=summarize)
    after = b.add("Identity", b.const(7.0), control=[node])
    return [Step([after[0]]), Step(targets=[node])]


program("assert", assertion, condition=True, data=[[1.0]], kinds=[["float"]], ops=[("Assert", NONE)])
program("assert", assertion, condition=[[True]], data=[[1.0]], kinds=[["float"]], ops=["Assert"], either=True)
for data, kinds in (
    ([1.5], ["float"]),
    ([[1, 2, 3, 4, 5]], ["int32"]),
    ([b"it failed: ", [1.0, 2.5], [[True, False]]], ["string", "float", "bool"]),
    ([[b"a\0b", b"\x7f"], 3 + 4j], ["string", "complex64"]),
    ([1e-20, 1e20, 0.1, 100000.0, 1234567.0, float("nan"), float("-inf")], ["float"] * 7),
    ([0.1, 1e300], ["double", "half"]),
):
    for summarize in (3, -1, 1):
        program("assert", assertion, condition=False, data=[data], kinds=[kinds], summarize=summarize, ops=["Assert"], fails=True, code=INVALID_ARGUMENT, text=True)


def printing(b, T, first_n):
    data = b.placeholder(T)
    node = b.node("Print", data, [b.const([1.0, 2.0], "float"), b.const(b"word", "string")], message="said: ", first_n=first_n)
    return [Step([node], feeds=[(data, shape(2, 3)(np.random.default_rng(1), T))])] * 2


program("print", printing, T=EVERY, first_n=-1, ops=[("Print", NONE)])
program("print", printing, T=["float"], first_n=[0, 1], ops=[("Print", NONE)])


def order(b):
    """NoOps tie nodes together: the assignment runs before the read that depends on it."""
    variable = b.node("VariableV2", dtype="float", shape=[])
    init = b.add("Assign", variable, b.const(3.0))
    done = b.add("NoOp", control=[init])
    group = b.add("NoOp", control=[done])
    value = b.add("Identity", variable, control=[group])
    return [Step(targets=[group]), Step([value[0]]), Step(targets=[group])]


program("order", order, ops=[("NoOp", NONE)])


def after_failure(b):
    """A failing node keeps what depends on it from running, and the session goes on."""
    variable = b.node("VariableV2", dtype="float", shape=[])
    init = b.add("Assign", variable, b.const(3.0))
    fail = b.add("Assert", b.const(False, "bool"), [b.const(b"no", "string")])
    spoil = b.add("Assign", variable, b.const(-1.0), control=[fail])
    return [Step(targets=[init]), Step(targets=[spoil]), Step([variable])]


program("after a failure", after_failure, ops=["Assert"], fails=True, code=INVALID_ARGUMENT)
