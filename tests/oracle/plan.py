"""Which cases there are, which of them a run wants, and which dtypes have none."""

import collections
import importlib
import pkgutil

from tests.oracle import cases, dtypes, table


def load(families):
    """Imports the tables of the given families (all without any); returns {op: family} of the ops in scope.

    A process can load one choice of families only, since importing is what adds the rows.
    """
    scope = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(cases.__path__)):
        name = module.split("_")[0]
        if families and name not in families:
            continue
        table.family(name)
        for op in importlib.import_module(f"tests.oracle.cases.{module}").OPS.split():
            scope[op] = name
    return scope


def select(args):
    chosen = []
    for expand in table.ROWS:
        for case in expand():
            ops = {case.op} | {name for name, _ in case.covers}
            if args.op and not ops & set(args.op):
                continue
            if args.case and args.case not in case.label:
                continue
            if args.T and not any(f"={t}," in case.label.replace("]", ",") for t in args.T):
                continue
            chosen.append(case)
    return chosen


# TensorFlow's own kernels abort the process for these, or leave them to oneDNN, so there is nothing to compare with.
ABORTING = {
    ("RaggedCross", "out_row_splits_type", "int32"),
    ("UnicodeDecodeWithOffsets", "Tsplits", "int32"),
    ("_FusedConv2D", "T", "qint8"),
    ("QuantizedConv2D", "Tfilter", "qint8"),
}


def uncovered(scope, chosen):
    """Lines naming ops in scope whose dtypes have no case."""
    have = collections.defaultdict(list)
    for case in chosen:
        for op, types in case.covers:
            have[op].append(types)
    lines = []
    for op in sorted(scope):
        missing = []
        for kernel in dtypes.kernels().get(op, [{}]):
            if any(value in dtypes.UNFEEDABLE for value in kernel.values()):
                continue
            if any((op, attr, value) in ABORTING for attr, value in kernel.items()):
                continue
            if not any(all(types.get(k, v) == v for k, v in kernel.items()) for types in have[op]):
                missing.append(",".join(f"{k}={v}" for k, v in kernel.items()) or "any")
        if missing:
            lines.append(f"{op}: no case for {' ; '.join(missing[:12])}{' ...' if len(missing) > 12 else ''}")
    return lines
