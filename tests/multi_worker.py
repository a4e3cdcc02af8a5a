"""A worker of TensorFlow's strategy for several workers, in graph mode: prints its loss and weights after some steps.

Arguments: its index, and the addresses of all servers, separated by commas.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

v1 = tf.compat.v1
STEPS = 5
START = 0.5
RATE = 0.1


def examples(task):
    """The inputs and targets of a worker."""
    generator = np.random.default_rng(task)
    return [generator.normal(size=[8, width]).astype(np.float32) for width in (4, 1)]


def main():
    task, addresses = int(sys.argv[1]), sys.argv[2].split(",")
    v1.disable_v2_behavior()
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": addresses}), task_type="worker", task_id=task, rpc_layer="grpc"
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    with tf.Graph().as_default(), strategy.scope():
        # The first worker's value is what all begin with.
        weights = v1.get_variable("weights", initializer=np.full([4, 1], START, np.float32) + task)
        x, y = map(tf.constant, examples(task))
        optimizer = v1.train.GradientDescentOptimizer(RATE)

        def step():
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
            with tf.control_dependencies([optimizer.apply_gradients(optimizer.compute_gradients(loss))]):
                return tf.identity(loss)

        total = strategy.reduce("SUM", strategy.run(step), axis=None)
        own = strategy.experimental_local_results(weights)[0]
        config = strategy.update_config_proto(v1.ConfigProto(operation_timeout_in_ms=60_000))
        with v1.Session(f"grpc://{addresses[task]}", config=config) as session:
            session.run(v1.global_variables_initializer())
            losses = [session.run(total) for _ in range(STEPS)]
            print(*losses, *session.run(own).ravel(), flush=True)


if __name__ == "__main__":
    main()
