"""Runs cases on TensorFlow's server and on ours, each a child process for the whole run."""

import concurrent.futures
import dataclasses

from tensorflow.core.protobuf import config_pb2

from tests.master import Master, MasterError
from tests.oracle import dtypes, plan
from tests.oracle.compare import compare
from tests.servers import TENSORFLOW, Server

CASE_SECONDS = 30
ATTEMPTS = 4
LOST_STEP = "request was received twice"
"""TensorFlow's master now and then draws a request number that its own worker has seen already, and refuses the step."""
_UNAVAILABLE, _DEADLINE = 14, 4


def session_config():
    """No graph optimisation, so that the kernel named by the node is the one that runs."""
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = config_pb2.OptimizerOptions.L0
    return config


@dataclasses.dataclass
class Result:
    """`failure` is None for a case that passed. `crashed` says that our server did not survive it."""

    family: str
    op: str
    label: str
    where: str
    failure: str | None
    crashed: bool = False


class Side:
    """A server and a client of it; starts again after a crash or a hang."""

    def __init__(self, binary):
        # oneDNN would put other kernels in the place of some; the plain ones are the reference.
        self.server = Server(binary, env={"TF_ENABLE_ONEDNN_OPTS": "0"})
        self.master = Master(self.server.address, CASE_SECONDS)
        self.config = session_config()
        self.worker = concurrent.futures.ThreadPoolExecutor(1)

    def run(self, graph, steps):
        """The answers to the steps (a list that ends early with a MasterError), and how the server died, or None."""
        answers = []
        try:
            handle = self.master.create_session(graph, self.config)
        except MasterError as error:
            return [error], self._ending(error)
        try:
            for step in steps:
                answers.append(self._step(handle, step))
                if isinstance(answers[-1], MasterError) and self._ending(answers[-1]):
                    return answers, self._ending(answers[-1])
            self.master.close_session(handle)
        except MasterError as error:
            return answers + [error], self._ending(error)
        return answers, None

    def _step(self, handle, step):
        feeds = [(ref.name, dtypes.to_proto(array, ref.dtype)) for ref, array in step.feeds]
        fetches = [getattr(ref, "name", ref) for ref in step.fetches]
        try:
            return self.master.run_step(handle, feeds, fetches, step.targets)
        except MasterError as error:
            return error

    def _ending(self, error):
        if error.code == _DEADLINE:
            return f"no answer within {CASE_SECONDS} s"
        if error.code == _UNAVAILABLE:
            try:
                self.server.process.wait(5)
            except Exception:
                return None
            return self.server.died()
        return None

    def revive(self):
        """A fresh server in place of the old one, whose last log lines are returned."""
        log = self.server.log_tail(400)
        self.server.stop()
        self.master.close()
        self.server = Server(self.server.binary, env=self.server.env)
        self.master = Master(self.server.address, CASE_SECONDS)
        return log

    def stop(self):
        self.worker.shutdown()
        self.master.close()
        self.server.stop()


class Bench:
    """The two servers. `binary` is the one under test (TENSORFLOW for a check of the bench itself)."""

    def __init__(self, binary):
        self.sides = [Side(TENSORFLOW), None]
        try:
            self.sides[1] = Side(binary)
        except BaseException:
            self.sides[0].stop()
            raise
        self.number = 0

    def run(self, case):
        """Runs one case on both servers at once and returns its Result."""
        crashed = False
        try:
            (theirs, their_end), (mine, my_end) = self._answers(case)
        except Exception as error:  # a row that cannot be built or sent is that row's failure
            failure = f"wrong table: {type(error).__name__}: {error}"
        else:
            if their_end:
                self.sides[0].revive()
                failure = f"wrong table: TensorFlow's server: {their_end}"
            elif not my_end:
                failure = compare(case.check, theirs, mine)
            if my_end:
                crashed = True
                log = " ".join(self.sides[1].revive().split())
                failure = f"the server: {my_end}: {log}"
        return Result(case.family, case.op, case.label, case.where, failure, crashed)

    def _answers(self, case):
        """What both sides answer; asked again, with fresh state, where TensorFlow lost a step of its own accord."""
        for _ in range(ATTEMPTS):
            self.number += 1
            graph, steps = case.build(f"c{self.number}/")
            tasks = [side.worker.submit(side.run, graph, steps) for side in self.sides]
            theirs, mine = [task.result() for task in tasks]
            if not any(isinstance(answer, MasterError) and LOST_STEP in answer.text for answer in theirs[0]):
                break
        return theirs, mine

    def stop(self):
        for side in self.sides:
            side.stop()


def run_share(options, share, of, progress=None):
    """Runs every `of`-th chosen case, from number `share` on, in this process; returns the Results."""
    plan.load(options.family)
    chosen = plan.select(options)[share::of]
    bench = Bench(options.bin)
    results = []
    try:
        for case in chosen:
            results.append(bench.run(case))
            if progress:
                progress(len(results), len(chosen))
    finally:
        bench.stop()
    return results
