"""python -m tests.oracle: runs the case tables on TensorFlow's server and on graphmill, and compares."""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

from tests.oracle.plan import load, select, uncovered  # noqa: E402
from tests.oracle.runner import run_share  # noqa: E402
from tests.servers import TENSORFLOW, default_binary  # noqa: E402

SHOWN_PER_OP = 6


def show_progress(done, total):
    if sys.stderr.isatty() or done % 500 == 0:
        print(f"\r{done}/{total}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


def report(results, show_all):
    """Prints the failures by op; cases of one row that fail in the same words share a line."""
    failures = collections.defaultdict(dict)
    totals = collections.Counter(f"{r.family}/{r.op}" for r in results)
    for result in results:
        if result.failure:
            groups = failures[f"{result.family}/{result.op}"]
            groups.setdefault((result.where, result.failure), []).append(result.label)
    for op, groups in sorted(failures.items()):
        print(f"{op}: {sum(map(len, groups.values()))} of {totals[op]} failed")
        shown = list(groups.items())[: None if show_all else SHOWN_PER_OP]
        for (where, failure), labels in shown:
            more = f" and {len(labels) - 1} more of this row" if len(labels) > 1 else ""
            print(f"  {where} {labels[0]}{more}\n      {failure}")
        if len(shown) < len(groups):
            print(f"  ... and {len(groups) - len(shown)} more kinds (--all shows them)")


def parse():
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--family", nargs="*", default=[], help="only these families of tables")
    parser.add_argument("--op", nargs="*", default=[], help="only cases of these ops")
    parser.add_argument("--T", nargs="*", default=[], help="only cases with one of these dtypes")
    parser.add_argument("--case", help="only cases whose label contains this text")
    parser.add_argument("--bin", default=None, help="graphmill binary (else $GRAPHMILL_BIN, else target/release)")
    parser.add_argument("--self-check", action="store_true", help="TensorFlow's server takes the place of ours")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with two servers of its own")
    parser.add_argument("--list", action="store_true", help="print the cases and run nothing")
    parser.add_argument("--coverage", action="store_true", help="print the missing dtypes and run nothing")
    parser.add_argument("--all", action="store_true", help="print every failure")
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()
    options.bin = TENSORFLOW if options.self_check else options.bin or default_binary()
    return options


def main():
    options = parse()
    started = time.monotonic()
    scope = load(options.family)
    chosen = select(options)
    if options.list:
        for case in chosen:
            print(f"{case.family} {case.where} {case.label}")
        print(f"{len(chosen)} cases")
        return 0
    gaps = [] if options.op or options.case or options.T else uncovered(scope, chosen)
    if options.coverage:
        print("\n".join(gaps) or "every dtype of every op in scope has a case")
        return 1 if gaps else 0
    if options.jobs > 1:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
            shares = [pool.submit(run_share, options, i, options.jobs) for i in range(options.jobs)]
            results = [result for share in shares for result in share.result()]
    else:
        results = run_share(options, 0, 1, show_progress)
    report(results, options.all)
    for line in gaps:
        print(f"coverage: {line}")
    failed = sum(1 for result in results if result.failure) + len(gaps)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([dataclasses.asdict(result) for result in results], file, indent=1)
    print(f"{time.monotonic() - started:.0f} s")
    print(f"{len(results) + len(gaps) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
