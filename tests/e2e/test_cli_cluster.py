"""Starting, watching and ending clusters with the command line."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest
import tensorflow as tf

from tests.clusters import Cluster
from tests.servers import ROOT, Server, default_binary, free_port

v1 = tf.compat.v1
pytestmark = pytest.mark.ours_only
SECONDS = 30


def graphmill(*args, **env):
    return subprocess.run(
        [default_binary(), *args], capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **env}
    )


def until(condition):
    """What `condition` yields once it is true."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come about")


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def up():
    """A local cluster: the running command, and what it says when it is ready."""
    argv = [default_binary(), "cluster", "up", "--ps", "1", "--workers", "2", "--json"]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    yield process, json.loads(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_local_cluster_runs_steps_and_ends_whole(up, number):
    process, ready = up
    target = [task["target"] for task in ready["tasks"] if task["job"] == "worker"][0]
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            far = tf.constant(2.0)
        with tf.device("/job:worker/task:1"):
            total = far + 3.0
    with v1.Session(target, graph=graph) as session:
        assert session.run(total) == 5.0
    process.send_signal(number)
    assert process.wait(SECONDS) == 0
    assert not any(is_running(task["process"]) for task in ready["tasks"])


def test_the_tasks_do_not_outlive_a_killed_command(up):
    process, ready = up
    process.kill()
    until(lambda: not any(is_running(task["process"]) for task in ready["tasks"]))


def test_a_task_that_dies_is_named(up):
    process, ready = up
    os.kill(ready["tasks"][0]["process"], signal.SIGKILL)
    event = json.loads(process.stdout.readline())
    assert (event["event"], event["job"], event["clean"]) == ("exit", "ps", False)
    assert "signal 9" in event["status"]
    process.terminate()
    assert process.wait(SECONDS) == 1


def test_tf_config_and_files():
    config = {"cluster": {"ps": ["h:1"], "worker": ["h:2", "h:3"]}, "task": {"type": "worker", "index": 1}}
    shown = json.loads(graphmill("config", "show", "--json", TF_CONFIG=json.dumps(config)).stdout)
    assert shown["cluster"] == {"value": "ps=h:1;worker=h:2,h:3", "source": "TF_CONFIG"}
    assert (shown["job"]["value"], shown["task"]["value"], shown["port"]["value"]) == ("worker", 1, 3)


def test_a_wrong_file_is_named_with_line_and_key(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("job = 'ps'\nport = 70000\n")
    failed = graphmill("serve", "--config", str(path))
    assert failed.returncode == 1
    assert str(path) in failed.stderr and "line 2" in failed.stderr and "key port" in failed.stderr


def test_twenty_starts_and_stops_on_one_port():
    port = free_port()
    for _ in range(20):
        with Server(default_binary(), port=port) as server:
            assert graphmill("stop", server.target).returncode == 0
            assert server.process.wait(SECONDS) == 0


def blocked(target, outcome):
    """A session whose step waits for an element of a queue."""
    with tf.Graph().as_default() as graph:
        element = v1.FIFOQueue(3, [tf.float32], shared_name="line").dequeue()

    def run():
        try:
            v1.Session(target, graph=graph).run(element)
        except tf.errors.OpError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_blocked_dequeue_is_seen_and_drained():
    outcome = []
    with Server(default_binary(), options=["--grace", "1"]) as server:
        thread = blocked(server.target, outcome)
        until(lambda: server.status()["steps"])
        queue = server.status()["queues"][0]
        assert (queue["elements"], queue["dequeues"]) == (0, 1)
        assert server.status()["steps"][0]["waits_for"] == ["an element of queue line, which has 0 ready"]
        start = time.monotonic()
        server.process.terminate()
        assert server.process.wait(SECONDS) == 0
        assert 0.9 < time.monotonic() - start < 6
        thread.join(SECONDS)
    assert isinstance(outcome[0], (tf.errors.AbortedError, tf.errors.UnavailableError))


def test_a_wait_for_gradients_is_seen_and_logged():
    with Cluster({"ps": ["ours"], "worker": ["ours"]}) as cluster:
        with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
            gradients = v1.ConditionalAccumulator(tf.float32, [], shared_name="sum")
            apply = gradients.apply_grad(tf.constant(1.0))
            take = gradients.take_grad(2)
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            session.run(apply)
            outcome = []
            thread = threading.Thread(target=lambda: outcome.append(session.run(take)), daemon=True)
            thread.start()
            ps, text = cluster["ps", 0], "accumulator sum: 1 of 2 gradients"
            step = until(lambda: ps.status()["steps"])[0]
            assert any(text in wait for wait in step["waits_for"])
            until(lambda: text in ps.log_tail())
            assert str(step["id"]) in ps.log_tail()
            session.run(apply)
            thread.join(SECONDS)
        assert outcome == [1.0]


def test_a_session_that_waits_for_a_task_is_seen():
    with Cluster({"ps": ["ours"], "worker": ["ours"]}, start=False) as cluster:
        server = cluster.start("worker", 0)
        blocked(server.target, [])
        creation = until(lambda: server.status()["creations"])[0]
        missing = creation["waits_for"][0]
        assert missing["task"] == "/job:ps/replica:0/task:0"
        assert missing["address"] == cluster.addresses["ps"][0]
        server.stop()


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "session-ends"])
def test_a_task_ends_with_the_chief(killed):
    with Cluster({"ps": ["ours"], "worker": ["ours"]}, options=["--exit-with-chief"]) as cluster:
        with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
            value = tf.constant(1.0)
        session = v1.Session(cluster.target("worker"), graph=graph)
        assert session.run(value) == 1.0
        time.sleep(1)
        if killed:
            cluster["worker", 0].process.kill()
        else:
            session.close()
        assert cluster["ps", 0].process.wait(6) == 0
