"""graphmill: a server for TensorFlow graphs within a Python process.

    import graphmill
    import tensorflow as tf

    with graphmill.Server() as server, tf.compat.v1.Session(server.target) as session:
        session.run(...)
"""

from graphmill._native import Server, __version__

__all__ = ["Server", "__version__"]
