"""What happens when tasks of a cluster, their clients or their network fail."""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.clusters import Cluster
from tests.e2e.programs import fresh_container
from tests.servers import ROOT, Server, default_binary, free_port

v1 = tf.compat.v1

ON_PS, W0, W1 = "/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"


@pytest.fixture
def trio():
    """A parameter server and two workers, for one test that may end them."""
    with Cluster({"ps": ["ours"], "worker": ["ours", "ours"]}) as running:
        yield running


@pytest.fixture(scope="module")
def steady():
    """The same for tests that leave it as it was."""
    with Cluster({"ps": ["ours"], "worker": ["ours", "ours"]}) as running:
        yield running


def session(cluster, graph=None, job="worker", task=0, **config):
    return v1.Session(cluster.target(job, task), graph=graph, config=v1.ConfigProto(**config))


def kill(server):
    server.process.kill()
    server.process.wait()


def threads(server):
    return len(os.listdir(f"/proc/{server.pid}/task"))


def descriptors(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def peak_memory(server):
    """The most memory that the process has held since `forget_peak`, in bytes."""
    with open(f"/proc/{server.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def forget_peak(server):
    with open(f"/proc/{server.pid}/clear_refs", "w") as file:
        file.write("5")


def eventually(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Background:
    """A call in a thread of its own. `error` is what it raised, `result` what it gave."""

    def __init__(self, call):
        self.error = self.result = None
        self.started = time.monotonic()
        self.seconds = None
        self.thread = threading.Thread(target=self.work, args=(call,), daemon=True)
        self.thread.start()

    def work(self, call):
        try:
            self.result = call()
        except tf.errors.OpError as error:
            self.error = error
        self.seconds = time.monotonic() - self.started

    def join(self, seconds=20):
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        return self


def chain(graph=None):
    """The value fed, by way of all three tasks: (x + 1) * 2 - 3."""
    x = v1.placeholder(tf.float32, [])
    with tf.device(ON_PS):
        y = x + 1.0
    with tf.device(W1):
        y = y * 2.0
    with tf.device(W0):
        return x, y - 3.0


# Limits of time


def test_the_session_s_time_limit_covers_its_making():
    with Cluster({"ps": ["ours"], "worker": ["ours"]}, start=False) as cluster:
        worker = cluster.start("worker", 0)
        with tf.Graph().as_default() as graph:
            with tf.device(ON_PS):
                result = tf.constant(1.0)

            def attempt(limit):
                with session(cluster, graph, operation_timeout_in_ms=limit) as s:
                    started = time.monotonic()
                    with pytest.raises(tf.errors.DeadlineExceededError):
                        s.run(result)
                    return time.monotonic() - started

            assert 0.5 <= attempt(1000) < 10
            before = threads(worker), descriptors(worker)
            for _ in range(30):
                assert attempt(200) < 10
            eventually(lambda: threads(worker) <= before[0] and descriptors(worker) <= before[1] + 2)
        with tf.Graph().as_default() as graph, session(cluster, graph, device_filters=["/job:worker"]) as s:
            assert s.run(tf.constant(1.0) + 2.0) == 3.0


def test_a_limit_of_a_run_goes_before_that_of_the_session(steady):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        with tf.device(ON_PS):
            take = v1.FIFOQueue(1, [tf.float32], [[]]).dequeue()
        with session(steady, graph, operation_timeout_in_ms=20000) as s:
            s.run(tf.constant(1))
            started = time.monotonic()
            for _ in range(20):
                with pytest.raises(tf.errors.DeadlineExceededError):
                    s.run(take, options=v1.RunOptions(timeout_in_ms=100))
            assert 1.0 <= time.monotonic() - started < 40


def test_a_session_whose_client_gave_up_leaves_nothing():
    with Cluster({"ps": ["ours"], "worker": ["ours"]}, start=False) as cluster:
        worker = cluster.start("worker", 0)
        program = f"""
import tensorflow as tf
with tf.Graph().as_default(), tf.device("{ON_PS}"):
    variable = tf.constant(1.0)
    print("started", flush=True)
    tf.compat.v1.Session("{cluster.target('worker')}").run(variable)
"""
        with client(program) as waiting:
            time.sleep(1)
            before = threads(worker)
            waiting.kill()
        time.sleep(0.5)
        ps = cluster.start("ps", 0)
        # A master that still waited would open the session now.
        time.sleep(1.5)
        assert threads(worker) <= before
        assert "session" not in ps.log_tail().lower()


# Tasks that die and come back


@contextlib.contextmanager
def client(program):
    """A Python process that runs a program and has printed its first line."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, env=env)
    try:
        assert process.stdout.readline().strip() == b"started"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("victim", [("ps", 0), ("worker", 1)], ids=lambda place: "".join(map(str, place)))
@pytest.mark.parametrize("blocked", [True, False], ids=["blocked step", "busy steps"])
def test_a_dead_task_is_noticed_and_its_return_too(trio, victim, blocked):
    with tf.Graph().as_default() as graph:
        x, y = chain()
        with tf.device(f"/job:{victim[0]}/task:{victim[1]}"):
            take = v1.FIFOQueue(1, [tf.float32], [[]]).dequeue()
        with tf.device(W0):
            late = take + 1.0
        s = session(trio, graph)
        assert s.run(y, {x: 1.0}) == 1.0

        def steps():
            at = 0
            while True:
                at += 1
                assert s.run(y, {x: at}) == 2 * at - 1

        running = Background(lambda: s.run(late) if blocked else steps())
        time.sleep(0.5)
        kill(trio[victim])
        killed = time.monotonic()
        running.join(5)
        assert running.started + running.seconds - killed < 15
        name = f"/job:{victim[0]}/replica:0/task:{victim[1]}"
        assert isinstance(running.error, tf.errors.UnavailableError) and name in str(running.error)
        started = time.monotonic()
        with pytest.raises(tf.errors.UnavailableError, match=name):
            s.run(y, {x: 1.0})
        assert time.monotonic() - started < 15
        trio.start(*victim)
        back = time.monotonic()
        with pytest.raises(tf.errors.AbortedError):
            s.run(y, {x: 1.0})
        s.close()
        with session(trio, graph) as s:
            assert s.run(y, {x: 4.0}) == 7.0
        assert time.monotonic() - back < 30


def test_the_error_after_a_restart_says_who_and_what(trio):
    with tf.Graph().as_default() as graph:
        x, y = chain()
        other = y * 2.0
        s = session(trio, graph)
        incarnations = {device.name: device.incarnation for device in s.list_devices()}
        assert s.run(y, {x: 1.0}) == 1.0
        trio["worker", 1].restart()
        with session(trio, graph) as fresh:
            now = {device.name: device.incarnation for device in fresh.list_devices()}
        # The same step again, and one that has to be prepared first.
        for fetch in (y, y, other):
            with pytest.raises((tf.errors.AbortedError, tf.errors.UnavailableError)) as raised:
                s.run(fetch, {x: 1.0})
            if isinstance(raised.value, tf.errors.UnavailableError):
                # The broken connection was noticed by this step alone.
                with pytest.raises(tf.errors.AbortedError) as raised:
                    s.run(fetch, {x: 1.0})
            device = "/job:worker/replica:0/task:1/device:CPU:0"
            parts = ("/job:worker/replica:0/task:1 at", "has restarted", str(incarnations[device] % 2**64), str(now[device] % 2**64))
            assert all(part in str(raised.value) for part in parts)
            assert "/job:ps/replica:0/task:0 at" not in str(raised.value)


@pytest.mark.parametrize("victim", [("ps", 0), ("worker", 1)], ids=lambda place: "".join(map(str, place)))
def test_closing_and_reset_come_to_an_end_without_a_task(trio, victim):
    with tf.Graph().as_default() as graph:
        x, y = chain()
        with tf.device(ON_PS):
            take = v1.FIFOQueue(1, [tf.float32], [[]]).dequeue()
        s = session(trio, graph)
        s.run(y, {x: 1.0})
        running = Background(lambda: s.run(take))
        time.sleep(0.3)
        kill(trio[victim])
        closing = Background(s.close).join(15)
        running.join(15)
        assert closing.seconds < 15 and running.error is not None
        resetting = Background(lambda: v1.Session.reset(trio.target("worker"))).join(15)
        assert isinstance(resetting.error, tf.errors.UnavailableError)
        trio.start(*victim)
        v1.Session.reset(trio.target("worker"))
        with session(trio, graph) as s:
            assert s.run(y, {x: 1.0}) == 1.0


def test_closing_and_reset_do_not_wait_for_a_frozen_task(trio):
    with tf.Graph().as_default() as graph:
        x, y = chain()
        s = session(trio, graph)
        s.run(y, {x: 1.0})
        os.kill(trio["worker", 1].pid, signal.SIGSTOP)
        try:
            closing = Background(s.close).join(16)
            resetting = Background(lambda: v1.Session.reset(trio.target("worker"))).join(16)
        finally:
            os.kill(trio["worker", 1].pid, signal.SIGCONT)
        assert closing.seconds < 15 and resetting.seconds < 15
        with session(trio, graph) as s:
            assert s.run(y, {x: 1.0}) == 1.0


@pytest.mark.parametrize("kind", ["ours", "tensorflow"])
@pytest.mark.parametrize("waits", ["dequeue", "gradient", "behind"])
def test_closing_ends_a_step_that_is_over_here_and_waits_elsewhere(kind, waits):
    with Cluster({"ps": [kind], "worker": ["ours"]}) as cluster, tf.Graph().as_default() as graph:
        with v1.device(ON_PS):
            gradient = v1.ConditionalAccumulator(tf.float32, shape=[], shared_name="gradients").take_grad(1)
            dequeue = v1.FIFOQueue(1, [tf.float32], [[]]).dequeue()
            with tf.control_dependencies([gradient]):
                behind = tf.no_op()
        # None of them gives the master a tensor, so that its own part ends at once.
        step = {"dequeue": dequeue.op, "gradient": gradient.op, "behind": behind}[waits]
        s = session(cluster, graph)
        running = Background(lambda: s.run(step))
        time.sleep(0.5)
        closing = Background(s.close).join(10)
        running.join(10)
        assert closing.seconds < 5
        assert isinstance(running.error, tf.errors.CancelledError), running.error


def test_a_frozen_task_delays_a_step_and_no_more(steady):
    with tf.Graph().as_default() as graph:
        x, y = chain()
        with session(steady, graph) as s:
            s.run(y, {x: 1.0})
            pid = steady["worker", 1].pid
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(tf.errors.DeadlineExceededError):
                    s.run(y, {x: 5.0}, options=v1.RunOptions(timeout_in_ms=500))
                waiting = Background(lambda: s.run(y, {x: 2.0}))
                time.sleep(1)
                assert waiting.thread.is_alive()
            finally:
                os.kill(pid, signal.SIGCONT)
            assert waiting.join().result == 3.0
            for at in range(20):
                assert s.run(y, {x: at}) == 2 * at - 1


def test_steps_need_only_the_tasks_that_they_run_on(trio):
    with tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            near = tf.constant(1.0) + 1.0
        with tf.device(W1):
            far = tf.constant(2.0) + 1.0
        with session(trio, graph) as s:
            assert s.run([near, far]) == [2.0, 3.0]
            kill(trio["worker", 1])
            assert s.run(near) == 2.0
            with pytest.raises(tf.errors.UnavailableError):
                s.run(far)
            assert s.run(near) == 2.0


BLOCKED_CLIENT = """
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_v2_behavior()
with tf.device("/job:ps/task:0"):
    taken = v1.FIFOQueue(1, [tf.float32], [[]], shared_name="abandoned").dequeue()
with tf.device("/job:worker/task:1"):
    result = taken + 1.0
session = v1.Session("{target}")
session.run(tf.constant(1))
print("started", flush=True)
session.run(result)
"""


def test_a_client_that_vanishes_ends_its_step_on_all_tasks(steady):
    with tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            queue = v1.FIFOQueue(1, [tf.float32], [[]], shared_name="abandoned")
            put, take, size = queue.enqueue(7.0), queue.dequeue(), queue.size()
        with session(steady, graph) as s:
            for at in range(3):
                with client(BLOCKED_CLIENT.format(target=steady.target("worker"))) as blocked:
                    time.sleep(0.5)
                    if at == 1:
                        before = {place: (threads(server), descriptors(server)) for place, server in steady.servers.items()}
                    blocked.kill()
                time.sleep(0.5)
                # A step that was still there would take this.
                s.run(put)
                time.sleep(0.1)
                assert s.run(size) == 1
                assert s.run(take) == 7.0
            for place, server in steady.servers.items():
                eventually(lambda: threads(server) <= before[place][0] and descriptors(server) <= before[place][1])


# Who answers


def test_two_processes_that_believe_to_be_the_same_task():
    with Cluster({"ps": ["ours", "ours"], "worker": ["ours"]}, start=False) as cluster:
        cluster.start("ps", 0)
        cluster.start("worker", 0)
        address = cluster.addresses["ps"][1]
        port = int(address.rsplit(":", 1)[1])
        with Server(default_binary(), job="ps", task=0, cluster=cluster.addresses, port=port):
            with tf.Graph().as_default() as graph:
                with tf.device("/job:ps/task:1"):
                    result = tf.constant(1)
                with session(cluster, graph) as s:
                    started = time.monotonic()
                    with pytest.raises(tf.errors.FailedPreconditionError) as raised:
                        s.run(result)
                    assert time.monotonic() - started < 15
        text = str(raised.value)
        assert address in text and "/job:ps/replica:0/task:1" in text and "/job:ps/replica:0/task:0" in text


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"], ids=["silent", "http 1"])
def test_something_else_at_the_address_of_a_task(answer):
    listener = socket.socket()
    listener.bind(("127.0.0.1", free_port()))
    listener.listen()
    open_connections = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_connections.append(connection)
                if answer:
                    connection.recv(100)
                    connection.sendall(answer)
                    connection.close()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    with Cluster({"ps": ["ours"], "worker": ["ours"]}, start=False) as cluster:
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        cluster.addresses["ps"][0] = address
        cluster.start("worker", 0)
        with tf.Graph().as_default() as graph:
            result = tf.constant(1)
            with session(cluster, graph, operation_timeout_in_ms=2000) as s, pytest.raises(tf.errors.OpError) as raised:
                s.run(result)
    listener.close()
    for connection in open_connections:
        connection.close()
    text = str(raised.value)
    assert isinstance(raised.value, (tf.errors.DeadlineExceededError, tf.errors.UnavailableError))
    assert address in text and "/job:ps/replica:0/task:0" in text and "refused" not in text


def test_proxies_of_the_environment_are_not_asked():
    proxy = f"http://127.0.0.1:{free_port()}"
    env = {name: proxy for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "grpc_proxy")}
    with Cluster({"ps": ["ours"], "worker": ["ours"]}, env=env) as cluster, tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            far = tf.constant(1.0)
        with tf.device(W0):
            total = far + 2.0
        with session(cluster, graph) as s:
            assert s.run(total) == 3.0


# State that outlives jobs


def test_a_variable_that_an_earlier_job_left(trio):
    def job(size):
        graph = tf.Graph()
        with graph.as_default(), tf.device(ON_PS):
            variable = v1.get_variable("a", [size], initializer=v1.zeros_initializer(), use_resource=False)
            init = v1.global_variables_initializer()
        return graph, variable, init

    graph, _, init = job(100)
    with session(trio, graph) as s:
        s.run(init)
    graph, variable, init = job(200)
    with session(trio, graph) as s:
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            s.run(init)
    for part in ("a", "[100]", "[200]", "container ps", "Session.reset"):
        assert part in str(raised.value)
    with graph.as_default(), graph.container("other"), tf.device(ON_PS):
        kept = v1.FIFOQueue(1, [tf.float32], [[]], shared_name="kept")
        put, size = kept.enqueue(1.0), kept.size()
    with graph.as_default(), tf.device(ON_PS):
        blocked = v1.FIFOQueue(1, [tf.float32], [[]], shared_name="blocked").dequeue()
    s = session(trio, graph)
    s.run(put)
    running = Background(lambda: s.run(blocked))
    time.sleep(0.3)
    v1.Session.reset(trio.target("worker"), ["ps"])
    assert isinstance(running.join().error, (tf.errors.CancelledError, tf.errors.AbortedError))
    with session(trio, graph) as s:
        s.run(init)
        assert s.run(variable).shape == (200,)
        assert s.run(size) == 1


def test_shards_of_a_checkpoint_on_disks_that_are_not_shared(tmp_path):
    with Cluster({"ps": ["ours", "ours"], "worker": ["ours"]}, start=False) as cluster:
        cluster.start("worker", 0)
        roots = [tmp_path / "disk0", tmp_path / "disk1"]
        for task, root in enumerate(roots):
            root.mkdir()
            server = Server(
                default_binary(), job="ps", task=task, cluster=cluster.addresses,
                port=int(cluster.addresses["ps"][task].rsplit(":", 1)[1]), options=("--file-root", str(root)),
            )
            cluster.servers["ps", task] = server
        with tf.Graph().as_default() as graph:
            for task in range(2):
                with tf.device(f"/job:ps/task:{task}"):
                    v1.get_variable(f"v{task}", initializer=np.float32([task, 1, 2]), use_resource=True)
            saver = v1.train.Saver(sharded=True)
            init = v1.global_variables_initializer()
            with session(cluster, graph) as s:
                s.run(init)
                # Each task may only use its own disk: neither finds the other's part.
                with pytest.raises(tf.errors.OpError) as raised:
                    saver.save(s, str(roots[0] / "model"), write_meta_graph=False)
                assert "/job:ps/replica:0/task:" in str(raised.value)


def test_a_shard_that_is_not_there_is_named(steady, tmp_path):
    with tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            parts = tf.constant([str(tmp_path / "part0"), str(tmp_path / "part1")])
            write = tf.raw_ops.SaveV2(prefix=parts[0], tensor_names=["v"], shape_and_slices=[""], tensors=[tf.constant([1.0])])
            merge = tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(tmp_path / "whole"))
        with session(steady, graph) as s:
            s.run(write)
            with pytest.raises(tf.errors.NotFoundError) as raised:
                s.run(merge)
    for part in ("part1.index", "part 2 of the 2 that make", "the task that saves it", "/job:ps/replica:0/task:0"):
        assert part in str(raised.value)
    assert (tmp_path / "part0.index").exists()


# Large tensors


@pytest.mark.parametrize("rows", [80_000, 250_000], ids=["96 MB", "300 MB"])
def test_a_large_variable_moves_to_another_task(steady, rows):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        with tf.device(ON_PS):
            variable = v1.get_variable("v", [rows, 300], initializer=v1.ones_initializer(), use_resource=True)
            init = variable.initializer
        with tf.device(W0):
            total = tf.reduce_sum(tf.cast(variable, tf.float64))
        with session(steady, graph) as s:
            s.run(init)
            size = rows * 300 * 4
            ps = steady["ps", 0]
            forget_peak(ps)
            assert s.run(total) == rows * 300
            # Shared memory of earlier transfers is kept to be filled again.
            assert peak_memory(ps) < 2 * size + 500_000_000
            if rows == 80_000:
                assert s.run(variable).sum() == rows * 300
        v1.Session.reset(steady.target("worker"), [graph._container])


def available_memory():
    """Bytes that processes may still take."""
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


@pytest.mark.skipif(available_memory() < 14 << 30, reason="takes several tensors of two gigabytes")
def test_a_tensor_that_no_message_can_hold(steady):
    with tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            large = tf.fill([2**31 + 1000], tf.constant(1, tf.int8))
        with tf.device(W0):
            there = tf.size(tf.identity(large), out_type=tf.int64) + tf.cast(large[5], tf.int64)
        with session(steady, graph) as s:
            # Between graphmill's own tasks there is no limit.
            assert s.run(there) == 2**31 + 1001
            with pytest.raises(tf.errors.ResourceExhaustedError) as raised:
                s.run(large)
            size, limit = (int(number) for number in re.findall(r"\d{10}", str(raised.value))[:2])
            assert size >= 2**31 + 1000 and limit == 2**31 - 1
            assert s.run(tf.constant(1)) == 1


# What a step reports


def test_traces_show_what_moves_between_tasks(steady):
    with tf.Graph().as_default() as graph:
        with tf.device(ON_PS):
            source = tf.random.uniform([2_500_000])
        with tf.device(W0):
            total = tf.reduce_sum(source)
        with session(steady, graph) as s:
            s.run(total)
            plain, traced = v1.RunMetadata(), v1.RunMetadata()
            s.run(total, run_metadata=plain)
            s.run(total, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=traced)
    assert not plain.step_stats.dev_stats
    stats = {device.device: device for device in traced.step_stats.dev_stats}
    assert {name.split("/device")[0] for name in stats} >= {"/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"}
    moves = [node for device in stats.values() for node in device.node_stats if node.node_name == "RecvTensor"]
    assert len(moves) == 1
    label = moves[0].timeline_label
    for part in ("random_uniform", "from /job:ps/replica:0/task:0/device:CPU:0", "to /job:worker/replica:0/task:0/device:CPU:0"):
        assert part in label
    assert label.startswith("[9.5MB] [")
    assert moves[0].all_end_rel_micros > 0


# Many faults at random moments


def run_with_kills(cluster, directory, kills, seed, steps_between=15):
    """A monitored run during which tasks are killed at random moments and started again. Returns what happened."""
    choose = random.Random(seed)
    places = [("ps", 0), ("worker", 0), ("worker", 1)]
    stop, taken, sessions, recoveries, kinds = threading.Event(), [], [], [], []

    class Sessions(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            sessions.append(time.monotonic())

    class StopWhenAsked(v1.train.SessionRunHook):
        def after_run(self, context, values):
            if stop.is_set():
                context.request_stop()

    def work():
        with tf.Graph().as_default():
            with tf.device(ON_PS):
                global_step = v1.train.get_or_create_global_step()
                with tf.control_dependencies([v1.assign_add(global_step, 1)]):
                    step = global_step.read_value() if hasattr(global_step, "handle") else global_step + 0
            x, y = chain()
            with v1.train.MonitoredTrainingSession(
                cluster.target("worker"), checkpoint_dir=directory, save_checkpoint_steps=5, save_summaries_steps=None,
                log_step_count_steps=None, hooks=[Sessions(), StopWhenAsked()], stop_grace_period_secs=2,
            ) as s:
                at = 0
                while not s.should_stop():
                    at += 1
                    count, value = s.run([step, y], {x: at})
                    assert value == 2 * at - 1
                    taken.append((time.monotonic(), int(count), len(sessions)))
        return True

    running = Background(work)
    # A failed assertion of the worker ends its thread without a result.
    for _ in range(kills):
        mark = len(taken)
        eventually(lambda: len(taken) >= mark + steps_between or not running.thread.is_alive(), 30)
        assert running.thread.is_alive()
        time.sleep(choose.random() * 0.1)
        place = choose.choice(places)
        kinds.append(place)
        kill(cluster[place])
        time.sleep(choose.random() * 0.3)
        cluster.start(*place)
        back, mark = time.monotonic(), len(sessions)
        eventually(lambda: taken[-1][0] > back or not running.thread.is_alive(), 20)
        assert running.thread.is_alive(), running.error
        recoveries.append(next(when for when, *_ in taken if when > back) - back)
    stop.set()
    running.join(30)
    assert running.error is None and running.result
    return taken, recoveries, kinds


def check_counts(taken, directory):
    """Within a session the count goes up by one with each step, and a new session goes on from a checkpoint before that."""
    highest = 0
    for (_, before, session_before), (_, now, session_now) in zip(taken, taken[1:]):
        highest = max(highest, before)
        if session_before == session_now:
            assert now == before + 1
        else:
            # At most the steps since the last checkpoint are taken again, and the one that was cut off may have counted.
            assert highest - 6 <= now <= highest + 2
    last = tf.train.latest_checkpoint(directory)
    assert v1.train.NewCheckpointReader(last).get_tensor("global_step") == taken[-1][1]


def test_a_monitored_run_survives_kills_at_random_moments(trio, tmp_path):
    taken, recoveries, _ = run_with_kills(trio, str(tmp_path), kills=6, seed=11)
    check_counts(taken, str(tmp_path))
    assert max(recoveries) < 30
