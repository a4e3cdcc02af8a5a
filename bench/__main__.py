"""Runs each workload on TensorFlow's own server and on graphmill in turn, and prints the ratio of their times.

The two take turns (TF, ours, ours, TF, ...), so that what else runs on the machine falls on both. A ratio of 2 means
that graphmill needs half the time. The range is that of the ratios of the single rounds.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402

from bench import workloads  # noqa: E402
from tests.servers import TENSORFLOW, Server, default_binary  # noqa: E402

v1 = tf.compat.v1
TICK = os.sysconf("SC_CLK_TCK")
WARM_UP_STEPS = 3


@dataclasses.dataclass
class Round:
    """Median time of a step, server CPU time of a step (seconds), and the value of each step."""

    seconds: float
    cpu: float
    values: list


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory_mb(pid):
    """Peak resident memory."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


class Contender:
    """A session of one workload on one server."""

    def __init__(self, server, workload, graph):
        self.server, self.workload = server, workload
        self.session = v1.Session(server.target, graph=graph)
        if workload.init is not None:
            self.session.run(workload.init)
        self.steps = 0
        self.round(0, WARM_UP_STEPS)

    def round(self, seconds, least=2):
        """Steps for at least `seconds` and at least `least` of them."""
        times, values = [], []
        cpu = cpu_seconds(self.server.pid)
        end = time.perf_counter() + seconds
        while len(times) < least or time.perf_counter() < end:
            started = time.perf_counter()
            values.append(float(self.workload.step(self.session, self.steps)))
            times.append(time.perf_counter() - started)
            self.steps += 1
        cpu = (cpu_seconds(self.server.pid) - cpu) / len(times)
        return Round(statistics.median(times), cpu, values)


def compare(build, servers, options):
    """The rounds of both servers, TensorFlow's first, and whether their values agree."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        workload = build()
    contenders = [Contender(server, workload, graph) for server in servers]
    rounds = ([], [])
    for number in range(options.rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            rounds[side].append(contenders[side].round(options.seconds))
    values = [[value for r in side for value in r.values] for side in rounds]
    agree = all(math.isclose(a, b, rel_tol=workload.rtol, abs_tol=workload.rtol) for a, b in zip(*values))
    for contender in contenders:
        contender.session.close()
    return rounds, agree


def startup(binaries, options):
    """Rounds of starting a server until it answers its first step, and of its CPU time until then."""
    with tf.Graph().as_default() as graph:
        total = tf.constant(1.0) + 2.0
    rounds = ([], [])
    for _ in range(min(options.rounds, 3)):
        for side, binary in enumerate(binaries):
            started = time.perf_counter()
            with Server(binary) as server, v1.Session(server.target, graph=graph) as session:
                value = float(session.run(total))
                seconds = time.perf_counter() - started
                rounds[side].append(Round(seconds, cpu_seconds(server.pid), [value]))
    return rounds, all(r.values == [3.0] for side in rounds for r in side)


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms"


def summarise(name, rounds, agree):
    """Prints the line of a workload and returns it as a dictionary."""
    theirs, ours = ([r.seconds for r in side] for side in rounds)
    ratios = [a / b for a, b in zip(theirs, ours)]
    ratio = statistics.median(theirs) / statistics.median(ours)
    cpu = [statistics.median(r.cpu for r in side) for side in rounds]
    result = {
        "workload": name,
        "tensorflow_s": statistics.median(theirs),
        "graphmill_s": statistics.median(ours),
        "ratio": ratio,
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "tensorflow_cpu_s": cpu[0],
        "graphmill_cpu_s": cpu[1],
        "agree": agree,
    }
    print(
        f"{name:13} {milliseconds(result['tensorflow_s']):>10} {milliseconds(result['graphmill_s']):>10}"
        f"  {ratio:6.2f}  ({min(ratios):.2f} to {max(ratios):.2f})"
        f"  cpu {milliseconds(cpu[0]):>9} {milliseconds(cpu[1]):>9}"
        f"  {'values agree' if agree else 'VALUES DIFFER'}",
        flush=True,
    )
    return result


def parse():
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = ["startup", *(build.__name__ for build in workloads.WORKLOADS)]
    parser.add_argument("--only", nargs="*", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--bin", default=None, help="graphmill binary (else $GRAPHMILL_BIN, else target/release)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    parser.add_argument("--json", help="write the results to this file")
    return parser.parse_args()


def main():
    options = parse()
    binaries = [TENSORFLOW, options.bin or default_binary()]
    results = []
    print(f"{'':13} {'TensorFlow':>10} {'graphmill':>10}  {'ratio':>6}  (range)         server cpu per step")
    if "startup" in options.only:
        results.append(summarise("startup", *startup(binaries, options)))
    with Server(binaries[0]) as theirs, Server(binaries[1]) as ours:
        for build in workloads.WORKLOADS:
            if build.__name__ not in options.only:
                continue
            try:
                results.append(summarise(build.__name__, *compare(build, (theirs, ours), options)))
            except tf.errors.OpError as error:
                print(f"{build.__name__:13} failed: {error.message.splitlines()[0][:150]}", flush=True)
                results.append({"workload": build.__name__, "error": error.message})
        peaks = [memory_mb(server.pid) for server in (theirs, ours)]
    print(f"peak memory: TensorFlow {peaks[0]:.0f} MB, graphmill {peaks[1]:.0f} MB")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 1 if any("error" in result or not result["agree"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
