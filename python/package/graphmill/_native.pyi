from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Protocol, final

__version__: str

class _ClusterSpec(Protocol):
    """`tf.train.ClusterSpec`, or whatever else turns into a dictionary."""

    def as_dict(self) -> Mapping[str, Sequence[str] | Mapping[int, str]]: ...

@final
class Server:
    """One task of a cluster: master and worker, in threads of this process. It serves from its construction until it is stopped.

    Raises `ValueError` for settings that do not fit together, and `OSError` if the port is taken or the directory missing.
    """

    def __new__(
        cls,
        cluster: str | Mapping[str, Sequence[str] | Mapping[int, str]] | _ClusterSpec | None = None,
        job_name: str | None = None,
        task_index: int = 0,
        *,
        host: str | None = None,
        port: int | None = None,
        intra_op_threads: int = 0,
        inter_op_threads: int = 0,
        file_root: str | PathLike[str] | None = None,
        session_timeout: float | None = None,
        collective_leader: str | None = None,
        log_level: str | None = None,
    ) -> Server:
        """Starts the task.

        Args:
          cluster: The tasks of each job with their addresses, as a dictionary, a `tf.train.ClusterSpec`, or a text such as
            `ps=ps0:2222;worker=w0:2222,w1:2222`. Without it the task is alone and called `/job:localhost/task:0`.
          job_name: The own job; not needed where the cluster has only one.
          task_index: The own task in its job.
          host: Name or address to listen on. Without it: all interfaces where the cluster says that others dial in, else loopback.
          port: Port to listen on, 0 for a free one. Without it: that of the own task in the cluster; alone, a free one.
          intra_op_threads: Threads that share a loop within an op; 0 for one each core.
          inter_op_threads: Threads that run ops; 0 for one each core.
          file_root: Directory that ops may read and write files in; others are refused. Without it: every file.
          session_timeout: Seconds after which a session ends that nobody uses. Without it: never.
          collective_leader: Task that leads groups of collective ops, such as `/job:worker/task:0`.
          log_level: What goes to standard error: error, warn, info, debug, trace or off; the first server of a process that says it
            decides. Without it: nothing.
        """

    @property
    def target(self) -> str:
        """Where clients of this machine reach the server: `grpc://localhost:2222`."""

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the server is stopped, by another thread or by leaving its `with` block, or until `timeout` seconds are over.

        Returns whether the server has stopped. A signal such as that of Control-C ends the wait as it ends any.
        """

    def stop(self, timeout: float = 3.0) -> None:
        """Ends the server: running steps fail with `ABORTED`, and their answers get `timeout` seconds to be sent.

        A server that has stopped already stays so.
        """

    def __enter__(self) -> Server: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
