"""The Python package: servers in this very process, beside their client."""

import os
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

graphmill = pytest.importorskip("graphmill", reason="the package is not installed; run: make wheel")

from tests.servers import TENSORFLOW, Server, free_port  # noqa: E402

v1 = tf.compat.v1


def test_a_session_on_a_server_of_the_own_process():
    with graphmill.Server() as server, tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None])
        with v1.Session(server.target) as session:
            assert session.run(x * 2, {x: [1, 2]}).tolist() == [2, 4]
            assert session.list_devices()[0].name == "/job:localhost/replica:0/task:0/device:CPU:0"
        assert "serving" in repr(server) and server.target in repr(server)
    assert "stopped" in repr(server)


@pytest.mark.parametrize("spelling", ["dictionary", "numbered", "text", "tensorflow"])
def test_clusters_in_each_spelling(spelling):
    address = f"127.0.0.1:{free_port()}"
    cluster = {
        "dictionary": {"worker": [address]},
        "numbered": {"worker": {0: address}},
        "text": f"worker={address}",
        "tensorflow": tf.train.ClusterSpec({"worker": [address]}),
    }[spelling]
    with graphmill.Server(cluster, job_name="worker", task_index=0, intra_op_threads=1, inter_op_threads=1) as server:
        assert server.target.endswith(address.split(":")[1])
        with v1.Session(server.target, graph=tf.Graph()) as session:
            assert session.list_devices()[0].name == "/job:worker/replica:0/task:0/device:CPU:0"


def test_a_cluster_of_the_own_process_and_tensorflow():
    cluster = {"ps": [f"127.0.0.1:{free_port()}"], "worker": [f"127.0.0.1:{free_port()}"]}
    port = int(cluster["ps"][0].split(":")[1])
    with Server(TENSORFLOW, job="ps", cluster=cluster, port=port), graphmill.Server(cluster, "worker") as worker:
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                variable = v1.get_variable("v", initializer=np.ones([4], np.float32), use_resource=True)
            with tf.device("/job:worker/task:0"):
                total = tf.reduce_sum(variable * 2)
            with v1.Session(worker.target) as session:
                session.run(variable.initializer)
                assert session.run(total) == 8


def test_join_waits_until_the_server_is_stopped():
    server = graphmill.Server(host="localhost")
    assert server.join(timeout=0.05) is False
    joined = []
    threads = [threading.Thread(target=lambda: joined.append(server.join())) for _ in range(3)]
    for thread in threads:
        thread.start()
    # The lock of the interpreter is free while they wait.
    assert not joined
    server.stop()
    for thread in threads:
        thread.join(10)
    assert joined == [True, True, True]
    server.stop()
    assert server.join() is True


def test_a_signal_ends_the_wait():
    class Signalled(Exception):
        pass

    def handler(*_):
        raise Signalled

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with graphmill.Server() as server:
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            with pytest.raises(Signalled):
                server.join()
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_stopping_ends_steps():
    server = graphmill.Server()
    with tf.Graph().as_default():
        take = v1.FIFOQueue(1, [tf.float32]).dequeue()
        session = v1.Session(server.target)
        timer = threading.Timer(0.5, server.stop)
        timer.start()
        begun = time.monotonic()
        with pytest.raises((tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.CancelledError)):
            session.run(take)
        timer.join()
        assert time.monotonic() - begun < 60


def test_a_server_that_is_dropped_ends():
    server = graphmill.Server()
    port = int(server.target.rsplit(":", 1)[1])
    del server
    with graphmill.Server(port=port) as again:
        assert again.target.endswith(f":{port}")


def test_files_stay_below_a_folder(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    with graphmill.Server(file_root=tmp_path / "inside") as server, tf.Graph().as_default():
        with v1.Session(server.target) as session:
            assert session.run(tf.io.read_file(str(tmp_path / "inside" / "a.txt"))) == b"a"
            with pytest.raises(tf.errors.OpError):
                session.run(tf.io.read_file(str(tmp_path / "b.txt")))


def test_errors():
    with pytest.raises(ValueError, match="several jobs"):
        graphmill.Server({"ps": ["a:1"], "worker": ["b:2"]})
    with pytest.raises(ValueError):
        graphmill.Server({"ps": ["no address"]})
    with pytest.raises(ValueError):
        graphmill.Server("nonsense")
    with pytest.raises(ValueError, match="log level"):
        graphmill.Server(log_level="=loud")
    with pytest.raises(ValueError, match="seconds"):
        graphmill.Server(session_timeout=-1)
    for cluster in (7, {"ps": "a:1"}, {"ps": 7}, {7: ["a:1"]}):
        with pytest.raises(TypeError):
            graphmill.Server(cluster)
    with pytest.raises(OverflowError):
        graphmill.Server(task_index=-1)
    with pytest.raises(OSError):
        graphmill.Server(file_root="/no such folder")
    with graphmill.Server() as server:
        with pytest.raises(OSError, match="taken"):
            graphmill.Server(port=int(server.target.rsplit(":", 1)[1]))
        with pytest.raises(ValueError):
            server.join(timeout=float("nan"))


def test_the_package_is_typed():
    folder = os.path.dirname(graphmill.__file__)
    assert os.path.exists(os.path.join(folder, "py.typed")) and os.path.exists(os.path.join(folder, "_native.pyi"))
    assert graphmill.Server.__doc__ and graphmill.Server.join.__doc__ and graphmill.Server.stop.__doc__
    assert graphmill.__version__.count(".") == 2
