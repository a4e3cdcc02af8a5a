"""Server tasks as child processes, TensorFlow's own and graphmill's behind one class."""

import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TENSORFLOW = "tensorflow"
"""Given instead of a path to a binary, this name stands for TensorFlow's own server."""

READY_SECONDS = 120


def default_binary():
    """The graphmill binary to test: $GRAPHMILL_BIN, else the release build of this tree."""
    return os.environ.get("GRAPHMILL_BIN") or str(ROOT / "target" / "release" / "graphmill")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _with_parent(argv):
    """`argv`, made to end with this process where the system offers that without code between fork and exec."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *argv] if setpriv else argv


class Server:
    """A running server task. `binary` is a path or TENSORFLOW. Use as a context manager, or call `stop`.

    `options` are further arguments of `graphmill serve`, or of `tests.tf_server`.
    """

    def __init__(self, binary, job="worker", task=0, cluster=None, port=None, env=None, options=()):
        self.binary = binary
        self.job, self.task = job, task
        self.env = dict(env or {})
        self.options = list(options)
        self.process = None
        self.log = None
        for attempts_left in reversed(range(1 if port or cluster else 3)):
            self.port = port or free_port()
            self.cluster = cluster or {job: [f"127.0.0.1:{self.port}"]}
            try:
                return self.start()
            except RuntimeError:
                # Another process may have taken the port since it was found free.
                if not attempts_left or "in use" not in self.log_tail():
                    raise

    def start(self):
        """Starts the task (again) on its port and waits for its ready line."""
        flags = ["--port", str(self.port), "--job", self.job, "--task", str(self.task)]
        flags += ["--cluster", ";".join(f"{job}={','.join(hosts)}" for job, hosts in self.cluster.items())]
        if self.binary == TENSORFLOW:
            argv = [sys.executable, "-m", "tests.tf_server", *flags, *self.options]
        else:
            argv = [self.binary, "serve", *flags, *self.options]
        if self.log:
            self.log.close()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            _with_parent(argv),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, **self.env},
        )
        self._wait_ready()

    def _wait_ready(self):
        end = time.monotonic() + READY_SECONDS
        line = b""
        while b"grpc://" not in line:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            line = self.process.stdout.readline() if ready else b""
            if not line:
                text = self.log_tail()
                self.stop()
                raise RuntimeError(f"{self.binary} did not become ready on port {self.port}:\n{text}")

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def target(self):
        return f"grpc://{self.address}"

    @property
    def pid(self):
        return self.process.pid

    def died(self):
        """None while the server runs, else how it ended, in words."""
        code = self.process.poll()
        if code is None:
            return None
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"

    def log_tail(self, size=2000):
        """The last bytes that the server wrote to its standard error."""
        end = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, end - size))
        return self.log.read().decode(errors="replace")

    def status(self):
        """What `graphmill status` says of it."""
        shown = subprocess.run(
            [default_binary(), "status", self.target, "--json"], capture_output=True, text=True, timeout=30, check=True
        )
        return json.loads(shown.stdout)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()

    def restart(self):
        self.stop()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
