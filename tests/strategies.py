"""Training by a strategy: one client for each task.

The program `transform` makes the graph of each from that of a single machine.
"""

import contextlib
import itertools
import json
import os
import subprocess
import threading
import time

import numpy as np
import tensorflow as tf

from tests.clusters import Cluster

v1 = tf.compat.v1
TRANSFORM = os.environ.get("GRAPHMILL_TRANSFORM")
"""The program `transform` (`cargo build -p graphmill-autodist --example transform`)."""

STEP_SECONDS = int(os.environ.get("GRAPHMILL_STEP_SECONDS", "60"))
IDS = itertools.count()


def resources(processors, addresses=None, chief=0):
    """The text of a resource file: `processors[i]` on node i."""
    lines = ["launcher: running", "nodes:"]
    for task, count in enumerate(processors):
        port = addresses[task].rsplit(":", 1)[1] if addresses else 2000 + task
        lines.append(
            f"  - {{address: localhost, port: {port}, task: {task}, cpus: {list(range(count))}, "
            f"chief: {'true' if task == chief else 'false'}}}"
        )
    return "\n".join(lines) + "\n"


def transform(folder, meta, spec, strategy, task, job):
    """The graph of a task and how to feed and fetch it; a RuntimeError with the line that the program prints."""
    paths = {name: folder / f"{name}-{task}" for name in ("in", "out", "map", "resources")}
    paths["in"].write_bytes(meta.SerializeToString())
    paths["resources"].write_text(spec)
    arguments = [paths["in"], paths["out"], paths["map"], paths["resources"], strategy, str(task), job]
    done = subprocess.run([TRANSFORM, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    written = v1.MetaGraphDef()
    written.ParseFromString(paths["out"].read_bytes())
    return written, json.loads(paths["map"].read_text())


def export(build):
    """The MetaGraphDef of what `build()` builds, with shapes."""
    with tf.Graph().as_default() as graph:
        build()
        meta = v1.train.export_meta_graph(graph=graph)
        meta.graph_def.CopyFrom(graph.as_graph_def(add_shapes=True))
        return meta


class Client:
    """A session of one task, with the names of the single-machine graph."""

    def __init__(self, target, meta, how):
        self.how = how
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(meta.graph_def, name="")
        config = v1.ConfigProto(allow_soft_placement=True, operation_timeout_in_ms=STEP_SECONDS * 1000)
        self.session = v1.Session(target, graph=self.graph, config=config)

    def initialise(self, barrier=True):
        """Takes first values; waits for the chief's before, and with `barrier` for all tasks' after."""
        if not self.how["is_chief"]:
            self.wait_for("ready")
        self.session.run(self.graph.get_operation_by_name(self.how["initialise"]))
        if barrier:
            self.wait_for("started")

    def wait_for(self, what):
        end = time.monotonic() + STEP_SECONDS
        while not self.session.run(self.how[what] + ":0"):
            assert time.monotonic() < end, f"the tasks are not {what}"
            time.sleep(0.01)

    def run(self, fetches, feeds=None):
        """Fetches tensors (`loss:0`) and operations (`train`) of the single-machine graph, feeding its placeholders."""
        fed = {}
        for name, value in (feeds or {}).items():
            feed = self.how["feeds"][name]
            copies = feed["copies"]
            pieces = np.array_split(value, len(copies)) if feed["split"] else [value] * len(copies)
            fed.update((f"{copy}:0", piece) for copy, piece in zip(copies, pieces))
        wanted, plan = {}, []
        for fetch in fetches:
            node, _, slot = fetch.partition(":")
            how = self.how["fetches"][node]
            whole = bool(slot) and int(slot) in how["concatenated"]
            copies = how["copies"] if whole or how["runs_all"] else how["copies"][:1]
            names = [f"{copy}:{slot}" if slot else copy for copy in copies]
            wanted.update((name, self.graph.as_graph_element(name)) for name in names)
            plan.append((names, whole))
        got = self.session.run(wanted, fed)
        return [np.concatenate([got[name] for name in names]) if whole else got[names[0]] for names, whole in plan]

    def close(self):
        self.session.close()


class Job:
    """All tasks of a job on a running cluster. `work(client, task)` runs in a thread for each."""

    def __init__(self, cluster, folder, meta, strategy, processors=None, chief=0):
        tasks = len(cluster.addresses["worker"])
        spec = resources(processors or [1] * tasks, cluster.addresses["worker"], chief)
        name = f"job{next(IDS)}-{os.getpid()}"
        self.clients = []
        for task in range(tasks):
            written, how = transform(folder, meta, spec, strategy, task, name)
            self.clients.append(Client(cluster.target("worker", task), written, how))

    def run(self, work, initialise=True):
        """What `work` returns on each task."""
        results, errors = [None] * len(self.clients), []

        def body(task):
            try:
                if initialise:
                    self.clients[task].initialise()
                results[task] = work(self.clients[task], task)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=body, args=[task]) for task in range(len(self.clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results

    def close(self):
        for client in self.clients:
            client.close()


@contextlib.contextmanager
def job(cluster, folder, meta, strategy, **options):
    made = Job(cluster, folder, meta, strategy, **options)
    try:
        yield made
    finally:
        made.close()


def cluster(kinds, tasks):
    """A cluster of workers of one kind, or of several (`"ours tensorflow"`), in which collectives meet."""
    kinds = kinds.split()
    workers = [kinds[task % len(kinds)] for task in range(tasks)]
    return Cluster({"worker": workers}, leader="/job:worker/replica:0/task:0")


def train_alone(meta, target_ops, steps, feeds, fetches):
    """What single-process TensorFlow fetches after `steps` runs of the graph on the joined batch; `feeds(step)`."""
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(meta)
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            operations = [graph.get_operation_by_name(name) for name in target_ops]
            for step in range(steps):
                session.run(operations, {f"{name}:0": value for name, value in feeds(step).items()})
            return session.run(fetches)
