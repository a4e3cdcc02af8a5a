"""One task of TensorFlow's own server, with the same flags and the same ready line as `graphmill serve`."""

import argparse
import os
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def parse_cluster(text):
    """`job=host:port,host:port;job2=...` as a dictionary of lists."""
    return {job: hosts.split(",") for job, hosts in (part.split("=", 1) for part in text.split(";"))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--job", default="worker")
    parser.add_argument("--task", type=int, default=0)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--collective-leader", default="")
    parser.add_argument("--device-count", default="CPU=1")
    args = parser.parse_args()

    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    config.experimental.collective_group_leader = args.collective_leader
    device_type, count = args.device_count.split("=")
    config.device_count[device_type] = int(count)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(parse_cluster(args.cluster)), job_name=args.job, task_index=args.task, config=config
    )
    print(f"ready {server.target}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
