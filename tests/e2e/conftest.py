"""Servers for the program tests. GRAPHMILL_BIN names the binary; `tensorflow` puts TensorFlow's own server in its place."""

import os
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

from tests.e2e.programs import lost_by_reference  # noqa: E402
from tests.master import Master  # noqa: E402
from tests.servers import TENSORFLOW, Server, default_binary  # noqa: E402

v1 = tf.compat.v1
v1.disable_v2_behavior()
# TensorFlow's client closes a session that is collected, and waits for ever for a server that a test has ended.
v1.Session.__del__ = lambda self: None


def pytest_configure(config):
    config.addinivalue_line("markers", "ours_only: asks for more than TensorFlow's own server gives")


def pytest_collection_modifyitems(items):
    if default_binary() == TENSORFLOW:
        for item in items:
            if item.get_closest_marker("ours_only"):
                item.add_marker(pytest.mark.skip(reason="TensorFlow's own server does otherwise"))


class Watched:
    """The server under test, started again if it dies, so that a crash fails one test and no client waits for ever.

    A test that runs longer than TEST_SECONDS loses its server too, which ends its calls.
    """

    def __init__(self):
        self.server = Server(default_binary())
        self.endings = []
        self.test_started = None
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.done.wait(0.2):
            if self.test_started and time.monotonic() - self.test_started > TEST_SECONDS:
                self.test_started = None
                self.server.process.kill()
                self.server.process.wait()
            ending = self.server.died()
            if ending:
                self.endings.append(f"{ending}: {self.server.log_tail(600)}")
                self.server.restart()

    def stop(self):
        self.done.set()
        self.thread.join()
        self.server.stop()


TEST_SECONDS = 240


@pytest.fixture(scope="session")
def watched():
    """graphmill, one process for the whole run."""
    watched = Watched()
    yield watched
    watched.stop()


@pytest.fixture
def server(watched):
    """The running server: `target`, `address`."""
    return watched.server


@pytest.fixture(scope="session")
def reference():
    """TensorFlow's own server."""
    with Server(TENSORFLOW, env={"TF_ENABLE_ONEDNN_OPTS": "0"}) as running:
        yield running


@pytest.fixture
def master(server):
    """A bare client of graphmill's MasterService."""
    client = Master(server.address, timeout=30)
    yield client
    client.close()


def trivial_step(target):
    with tf.Graph().as_default() as graph:
        total = tf.constant(1.0) + tf.constant(2.0)
    with v1.Session(target, graph=graph) as session:
        return session.run(total)


@pytest.fixture(autouse=True)
def still_serving(request):
    """After every test the server is the same process and still adds 1 and 2."""
    if "server" not in request.fixturenames:
        yield
        return
    watched = request.getfixturevalue("watched")
    endings = len(watched.endings)
    watched.test_started = time.monotonic()
    yield
    watched.test_started = None
    assert watched.server.died() is None and watched.endings[endings:] == []
    assert trivial_step(watched.server.target) == 3.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs a test again whose step was lost by TensorFlow's own server."""
    if "reference" not in pyfuncitem.fixturenames:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for _ in range(3):
        try:
            pyfuncitem.obj(**arguments)
            return True
        except tf.errors.AbortedError as error:
            if not lost_by_reference(error):
                raise
            v1.reset_default_graph()
    return None  # for the last time, by pytest


@pytest.fixture(autouse=True)
def fresh_graph():
    v1.reset_default_graph()
