"""Variables of both kinds: making, reading, assigning, scattering, counting."""

from tests.oracle.build import Step
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

SCATTERS = "Update Add Sub Mul Div Min Max".split()
OPS = f"""Variable VariableV2 Assign AssignAdd AssignSub IsVariableInitialized CountUpTo VarHandleOp ReadVariableOp
AssignVariableOp AssignAddVariableOp AssignSubVariableOp VarIsInitializedOp VariableShape ResourceGather
{' '.join('Scatter' + name for name in SCATTERS)} {' '.join('ResourceScatter' + name for name in SCATTERS)}"""


def rng():
    return np.random.default_rng(20)


def const(b, maker, dtype):
    return b.const(maker(rng(), dtype) if callable(maker) else maker, dtype)


def ref_variable(b, dtype, value, dims=None, op="VariableV2", **attrs):
    """(variable, its initialiser)"""
    array = value(rng(), dtype) if callable(value) else as_array(value, dtype)
    variable = b.node(op, dtype=dtype, shape=list(array.shape) if dims is None else dims)
    return variable, b.add("Assign", variable, b.const(array, dtype), **attrs)


def resource_variable(b, dtype, value, dims="own"):
    array = value(rng(), dtype) if callable(value) else as_array(value, dtype)
    # Without a shared name every handle of the server would name one and the same variable.
    shape = list(array.shape) if dims == "own" else dims
    handle = b.node("VarHandleOp", dtype=dtype, shape=shape, shared_name=b.name("handle"))
    return handle, b.add("AssignVariableOp", handle, b.const(array, dtype), dtype=dtype)


def read(b, handle, dtype):
    return b.node("ReadVariableOp", handle, dtype=dtype)


def ref_update(b, T, op, value, update, **attrs):
    variable, init = ref_variable(b, T, value)
    updated = b.node(op, variable, const(b, update, T), **attrs)
    return [Step([init[0]]), Step([updated]), Step([updated]), Step([variable])]


def of(attr="T", *others):
    """Function from a program's keywords to the op's attributes of the same names."""
    return lambda types: {key: types[key] for key in (attr, *others)}


for name in ("Assign", "AssignAdd", "AssignSub"):
    kinds = kernel_types(name, EVERY)
    covers = [(name, of())]
    program(f"{name} v", ref_update, T=kinds, op=name, value=shape(2, 3), update=shape(2, 3), ops=covers)
    for use_locking in (False, True):
        for value in (scalar(), empty(), large()):
            program(f"{name} v", ref_update, T=["float", "int32"], op=name, value=value, update=value, ops=covers, use_locking=use_locking)
    if name != "Assign":
        program(f"{name} v", ref_update, T=FLOATS, op=name, value=special(), update=shape(25), ops=covers)
    program(f"{name} of a wrong shape", ref_update, T=["float"], op=name, value=shape(2, 3), update=shape(3, 2), ops=[name], fails=True, code=INVALID_ARGUMENT, text=True)
    program(f"{name} of a wrong rank", ref_update, T=["float"], op=name, value=shape(2, 3), update=scalar(), ops=[name], fails=True, code=INVALID_ARGUMENT, text=True)


def uninitialized_update(b, T, op):
    variable = b.node("VariableV2", dtype=T, shape=[2])
    return [Step([b.node(op, variable, b.const([1, 2], T))])]


for name in ("AssignAdd", "AssignSub"):
    program(f"{name} before init", uninitialized_update, T=["float", "int64"], op=name, ops=[name], fails=True, code=FAILED_PRECONDITION, text=True)


def ref_read(b, T, op, dims):
    variable, init = ref_variable(b, T, shape(2, 3), dims, op)
    flag = b.node("IsVariableInitialized", variable, dtype=T)
    copy = b.node("Identity", variable)
    return [Step([flag]), Step([copy]), Step(targets=[init]), Step([flag, copy, variable])]


anything = [(name, lambda types: {}) for name in ("VariableV2", "Variable", "IsVariableInitialized")]
program("read", ref_read, T=kernel_types("Assign", EVERY), op="VariableV2", dims=[[2, 3]], ops=anything, fails=True, code=FAILED_PRECONDITION, text=True)
program("read", ref_read, T=["float", "string"], op="Variable", dims=[[2, 3]], ops=anything, fails=True, code=FAILED_PRECONDITION)
program("init of a wrong shape", ref_read, T=["float"], op="VariableV2", dims=[[3, 2]], ops=anything, fails=True)


def revalidate(b, T, validate_shape):
    """A second Assign with another shape, refused or not."""
    variable, init = ref_variable(b, T, shape(2, 3))
    other = b.add("Assign", variable, b.const([1, 2, 3], T), validate_shape=validate_shape)
    return [Step(targets=[init]), Step([other[0]]), Step([variable])]


program("reshape", revalidate, T=["float", "string"], validate_shape=False, ops=["Assign"])
program("reshape", revalidate, T=["float", "string"], validate_shape=True, ops=["Assign"], fails=True, code=INVALID_ARGUMENT, text=True)


def sharing(b, T):
    """Two variable nodes with one shared name are one variable; another container is another."""
    names = {"shared_name": f"{b.prefix}shared", "dtype": T, "shape": [2]}
    first, second = b.node("VariableV2", **names), b.node("VariableV2", **names)
    third = b.node("VariableV2", **names, container=f"{b.prefix.strip('/')}box")
    init = b.add("Assign", first, b.const([1, 2], T))
    flag = b.node("IsVariableInitialized", third, dtype=T)
    return [Step(targets=[init]), Step([second, flag])]


program("shared", sharing, T=["float", "int32", "string"], ops=["VariableV2"])


def count(b, T, start, limit):
    variable, init = ref_variable(b, T, start)
    counter = b.node("CountUpTo", variable, limit=limit)
    return [Step(targets=[init])] + [Step([counter])] * 4 + [Step([variable])]


program("count", count, T=["int32", "int64"], start=0, limit=3, ops=[("CountUpTo", of())], fails=True, code=OUT_OF_RANGE, text=True)
program("count", count, T=["int32", "int64"], start=-2, limit=9, ops=[("CountUpTo", of())])
program("count a vector", count, T=["int32"], start=[[1, 2]], limit=3, ops=["CountUpTo"], fails=True, code=INVALID_ARGUMENT, text=True)


def resource_update(b, dtype, op, value, update, dims="own"):
    handle, init = resource_variable(b, dtype, value, dims)
    updated = b.add(op, handle, const(b, update, dtype), dtype=dtype)
    after = b.add("ReadVariableOp", handle, dtype=dtype, control=[updated])
    return [Step(targets=[init]), Step([after[0]]), Step([after[0]]), Step([read(b, handle, dtype)])]


for name in ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"):
    kinds = kernel_types(name, EVERY, "dtype")
    covers = [(name, of("dtype")), ("VarHandleOp", lambda _: {}), ("ReadVariableOp", lambda _: {})]
    program(f"{name} v", resource_update, dtype=kinds, op=name, value=shape(2, 3), update=shape(2, 3), ops=covers)
    for value in (scalar(), empty(), large()):
        program(f"{name} v", resource_update, dtype=["float", "int32"], op=name, value=value, update=value, ops=covers)
    program(f"{name} of unknown shape", resource_update, dtype=["float"], op=name, value=shape(2, 3), update=shape(2, 3), dims=None, ops=covers)
    if name != "AssignVariableOp":
        for update in (shape(3, 2), scalar(), shape(3)):
            program(f"{name} of a wrong shape", resource_update, dtype=["float"], op=name, value=shape(2, 3), update=update, ops=[name], fails=True, code=INVALID_ARGUMENT, text=True)
program("AssignVariableOp v", resource_update, dtype=["float"], op="AssignVariableOp", value=shape(2, 3), update=shape(4), dims=None, ops=["AssignVariableOp"])


def resource_life(b, dtype):
    handle, init = resource_variable(b, dtype, shape(2, 3))
    flag = b.node("VarIsInitializedOp", handle)
    value = read(b, handle, dtype)
    return [Step([flag]), Step([value]), Step(targets=[init]), Step([flag, value])]


program("life", resource_life, dtype=kernel_types("AssignVariableOp", EVERY, "dtype"), ops=[("VarIsInitializedOp", lambda _: {})], fails=True, code=FAILED_PRECONDITION)


def resource_wrong_dtype(b, other):
    handle, init = resource_variable(b, "float", shape(2))
    return [Step(targets=[init]), Step([read(b, handle, other)])]


program("read as another dtype", resource_wrong_dtype, other=["int32", "double"], ops=["ReadVariableOp"], fails=True, code=INVALID_ARGUMENT)


def variable_shape(b, out_type, dims):
    handle, init = resource_variable(b, "float", shape(*dims), None)
    node = b.node("VariableShape", handle, out_type=out_type)
    return [Step(targets=[init]), Step([node])]


for dims in ((2, 3), (), (0, 4)):
    program("shape of", variable_shape, out_type=["int32", "int64"], dims=dims, ops=[("VariableShape", of("out_type"))])


def gather(b, dtype, Tindices, dims, indices, batch_dims=0, init=True):
    handle, init_op = resource_variable(b, dtype, shape(*dims))
    node = b.node("ResourceGather", handle, const(b, indices, Tindices), dtype=dtype, batch_dims=batch_dims)
    return ([Step(targets=[init_op])] if init else []) + [Step([node])]


kinds = kernel_types("ResourceGather", EVERY, "dtype")
gathers = [("ResourceGather", of("dtype", "Tindices"))]
program("gather", gather, dtype=kinds, Tindices=["int32", "int64"], dims=(5, 3), indices=index(5, 4), ops=gathers)
program("gather", gather, dtype=["float", "string"], Tindices=["int32"], dims=(5, 3), indices=index(5, 2, 2), ops=gathers)
program("gather", gather, dtype=["float"], Tindices=["int32"], dims=(5,), indices=2, ops=gathers)
program("gather", gather, dtype=["float"], Tindices=["int64"], dims=(3, 4, 2), indices=index(4, 3, 2), batch_dims=1, ops=gathers)
program("gather", gather, dtype=["float"], Tindices=["int32"], dims=(5, 3), indices=shape(0), ops=gathers)
for indices in ([0, 5], [-1]):
    program("gather", gather, dtype=["float"], Tindices=["int32", "int64"], dims=(5, 3), indices=[indices], ops=["ResourceGather"], fails=True, code=INVALID_ARGUMENT, text=True)
program("gather", gather, dtype=["float"], Tindices=["int32"], dims=(), indices=[[0]], ops=["ResourceGather"], fails=True, code=INVALID_ARGUMENT, text=True)
program("gather", gather, dtype=["float"], Tindices=["int32"], dims=(5, 3), indices=[[0]], init=False, ops=["ResourceGather"], fails=True)


def ref_scatter(b, T, Tindices, op, dims, indices, updates, init=True, **attrs):
    variable, init_op = ref_variable(b, T, positive(*dims))
    node = b.node(op, variable, const(b, indices, Tindices), const(b, updates, T), **attrs)
    return ([Step(targets=[init_op])] if init else []) + [Step([node]), Step([variable])]


def resource_scatter(b, dtype, Tindices, op, dims, indices, updates, init=True):
    handle, init_op = resource_variable(b, dtype, positive(*dims))
    node = b.add(op, handle, const(b, indices, Tindices), const(b, updates, dtype), dtype=dtype)
    value = read(b, handle, dtype)
    return ([Step(targets=[init_op])] if init else []) + [Step(targets=[node]), Step([value])]


for scatter in SCATTERS:
    for name, build, attr in ((f"Scatter{scatter}", ref_scatter, "T"), (f"ResourceScatter{scatter}", resource_scatter, "dtype")):
        kinds = kernel_types(name, EVERY, attr)
        covers = [(name, of(attr, "Tindices"))]
        tolerance = {"ulp": 4} if scatter in ("Mul", "Div") else {}

        def row(indices, updates, kinds, dims=(5, 2), which=("int32", "int64"), **options):
            program(name, build, **{attr: kinds}, Tindices=list(which), op=name, dims=dims, indices=indices, updates=updates, ops=covers, **options)

        some = [kind for kind in ("float", "int32", "double") if kind in kinds]
        row([[3, 0]], positive(2, 2), kinds, **tolerance)
        row([[1, 1, 4]], positive(3, 2), [k for k in kinds if k != "bool"], **tolerance)
        row([[[1, 2], [3, 0]]], positive(2, 2, 2), some, **tolerance)
        row(2, positive(2), some, **tolerance)
        row([[3, 0]], 2, some, **tolerance)
        row([[]], np.zeros((0, 2)), some)
        row([[3, 0, 3]], positive(3), some, dims=(5,), **tolerance)
        row(index(2000, 1500), positive(1500, 30), some, dims=(2000, 30), which=["int32"], ulp=16)
        wrong = {"fails": True}
        row([[5]], positive(1, 2), ["float"], **wrong, code=INVALID_ARGUMENT, text=True)
        row([[-1]], positive(1, 2), ["float"], **wrong, code=INVALID_ARGUMENT, text=True)
        row([[0, 1]], positive(1, 2), ["float"], **wrong, code=INVALID_ARGUMENT, text=True)
        if build is ref_scatter:  # the resource form accepts such updates in TensorFlow
            row([[0, 1]], positive(2, 3), ["float"], **wrong, code=INVALID_ARGUMENT, text=True)
        row([[0, 1]], positive(2, 2), ["float"], init=False, **wrong)
