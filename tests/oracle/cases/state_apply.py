"""Optimiser updates on reference and resource variables."""

from tensorflow.python.framework import op_def_registry

from tests.oracle.build import Step
from tests.oracle.cases.state import read, ref_variable, resource_variable
from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

RULES = "GradientDescent Momentum Adam Adagrad AdagradV2 RMSProp CenteredRMSProp"
OPS = " ".join(f"Apply{rule} ResourceApply{rule}" for rule in RULES.split())
SCALARS = {
    "alpha": 0.125,
    "lr": 0.125,
    "momentum": 0.75,
    "beta1_power": 0.8,
    "beta2_power": 0.96,
    "beta1": 0.9,
    "beta2": 0.98,
    "epsilon": 0.01,
    "rho": 0.875,
}
START = {"var": (-2.0, 2.0), "mg": (-0.1, 0.1)}


def apply(b, T, op, dims, runs=3, grad=None, wrong=None, skip_init=None, **attrs):
    """Slots filled with numbers, `runs` updates with one gradient, then all slots read.

    `wrong` is a pair (argument, its value or shape); `skip_init` names a slot that stays uninitialised.
    """
    resource = op.startswith("Resource")
    rng = np.random.default_rng(8)
    slots, inits, arguments = [], [], []
    wrong_name, wrong_value = wrong or (None, None)
    for argument in op_def_registry.get(op).input_arg:
        name = argument.name
        if argument.is_ref or argument.type == dtypes.enum("resource"):
            low, high = START.get(name, (0.25, 1.0))
            own = wrong_value if name == wrong_name else dims
            make = resource_variable if resource else ref_variable
            variable, init = make(b, T, shape(*own, low=low, high=high)(rng, T))
            slots.append(variable)
            arguments.append(variable)
            if name != skip_init:
                inits.append(init)
        elif name in ("grad", "delta"):
            own = wrong_value if name == wrong_name else dims
            arguments.append(b.const(grad(rng, T) if grad else shape(*own, low=-1, high=1)(rng, T), T))
        else:
            arguments.append(b.const(wrong_value if name == wrong_name else SCALARS[name], T))
    update = b.add(op, *arguments, T=T, **attrs)
    values = [read(b, slot, T) if resource else b.node("Identity", slot) for slot in slots]
    step = Step(targets=[update]) if resource else Step([update[0]])
    return ([Step(targets=inits)] if inits else []) + [step] * runs + ([Step(values)] if skip_init is None else [])


def flags(rule):
    """Settings of the boolean attributes worth a case each."""
    found = [{}, {"use_locking": True}]
    if rule in ("Momentum", "Adam"):
        found.append({"use_nesterov": True})
    if rule.startswith("Adagrad"):
        found.append({"update_slots": False})
    return found


for rule in RULES.split():
    scalar_name = "alpha" if rule == "GradientDescent" else "lr"
    grad_name = "delta" if rule == "GradientDescent" else "grad"
    for name in (f"Apply{rule}", f"ResourceApply{rule}"):
        kinds = kernel_types(name, EVERY)

        def row(kinds, dims, name=name, **options):
            fails = options.get("fails")
            tolerance = {} if fails else {"ulp": 16, "abs_ulp": 8}
            program("apply", apply, T=kinds, op=name, dims=dims, ops=[(name, lambda types: {"T": types["T"]})], **tolerance, **options)

        for setting in flags(rule):
            row(kinds, (3, 4), **setting)
        for dims in ((), (0, 3), (347, 331), (1,), (2, 3, 2, 3)):
            row(["float", "double"], dims)
        row(["float", "double"], (6,), grad=lambda _rng, dtype: as_array([0, -0.0, np.nan, np.inf, -np.inf, 1e-30], dtype))
        row(["float"], (3, 4), wrong=(grad_name, (4, 3)), fails=True, code=INVALID_ARGUMENT, text=True)
        row(["float"], (3, 4), wrong=(grad_name, (12,)), fails=True, code=INVALID_ARGUMENT)
        row(["float"], (3, 4), wrong=(scalar_name, [0.1, 0.2]), fails=True, code=INVALID_ARGUMENT, text=True)
        row(["float"], (3, 4), skip_init="var", fails=True)
        for argument in op_def_registry.get(name).input_arg:
            if argument.name in ("accum", "m", "v", "ms", "mom", "mg"):
                text = argument.name != "mg"  # there TensorFlow prints one shape twice
                row(["float"], (3, 4), wrong=(argument.name, (3, 5)), fails=True, code=INVALID_ARGUMENT, text=text)
                row(["float"], (3, 4), skip_init=argument.name, fails=True)
            elif argument.name in SCALARS:
                row(["float"], (3, 4), wrong=(argument.name, [0.5]), fails=True, code=INVALID_ARGUMENT, text=True)
