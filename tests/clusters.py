"""Clusters of several tasks as child processes, graphmill's and TensorFlow's mixed as a test wants."""

from tests.servers import TENSORFLOW, Server, default_binary, free_port


class Cluster:
    """Tasks on loopback. `jobs` maps a job to the kinds of its tasks: "ours" or "tensorflow". Use as a context manager.

    `cluster[job, task]` is a `Server`. With `start=False` nothing is started yet. Each task has so many CPU
    `devices`, and `leader` leads the groups of collective operations. `options` are for graphmill's tasks alone.
    """

    def __init__(self, jobs, options=(), env=None, start=True, devices=1, leader=None):
        self.addresses = {job: [f"127.0.0.1:{free_port()}" for _ in kinds] for job, kinds in jobs.items()}
        self.kinds = jobs
        self.options = options
        self.common = [f"--device-count=CPU={devices}", *([f"--collective-leader={leader}"] if leader else [])]
        self.env = env
        self.servers = {}
        try:
            if start:
                for job, kinds in jobs.items():
                    for task in range(len(kinds)):
                        self.start(job, task)
        except BaseException:
            self.stop()
            raise

    def start(self, job, task):
        """Starts one task, again if it ran before."""
        if (job, task) in self.servers:
            self.servers[job, task].restart()
            return self.servers[job, task]
        kind = self.kinds[job][task]
        server = Server(
            TENSORFLOW if kind == "tensorflow" else default_binary(),
            job=job,
            task=task,
            cluster=self.addresses,
            port=int(self.addresses[job][task].rsplit(":", 1)[1]),
            env=self.env,
            options=[*self.common, *(self.options if kind == "ours" else ())],
        )
        self.servers[job, task] = server
        return server

    def __getitem__(self, place):
        return self.servers[place]

    def target(self, job, task=0):
        return f"grpc://{self.addresses[job][task]}"

    def stop(self):
        for server in self.servers.values():
            server.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
