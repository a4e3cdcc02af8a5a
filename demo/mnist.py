"""Trains a convolutional network on MNIST through a TensorFlow client whose session runs on graphmill."""

import argparse
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # silences a notice; this process computes nothing

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from demo import data  # noqa: E402
from tests.servers import TENSORFLOW, Server, default_binary  # noqa: E402

v1 = tf.compat.v1
ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPARED_STEPS = 100
LOSS_TOLERANCE = 1e-3
WARM_UP_STEPS = 500
SEED = 5


class Model:
    """conv 5x5x32, pool, conv 5x5x64, pool, dense 512, dense 10; momentum with a learning rate that is fed."""

    def __init__(self, image_shape):
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(SEED)
            self.images = v1.placeholder(tf.float32, [None, *image_shape])
            self.labels = v1.placeholder(tf.int32, [None])
            self.rate = v1.placeholder(tf.float32, [])
            hidden = self.images
            for depth in (32, 64):
                kernel = self.weights([5, 5, int(hidden.shape[-1]), depth])
                hidden = tf.nn.conv2d(hidden, kernel, strides=1, padding="SAME")
                hidden = tf.nn.relu(tf.nn.bias_add(hidden, self.biases(depth)))
                hidden = tf.nn.max_pool2d(hidden, 2, 2, "SAME")
            flat = int(np.prod(hidden.shape[1:]))
            hidden = tf.reshape(hidden, [-1, flat])
            hidden = tf.nn.relu(tf.matmul(hidden, self.weights([flat, 512])) + self.biases(512))
            logits = tf.matmul(hidden, v1.Variable(tf.zeros([512, 10]), use_resource=True)) + self.biases(10)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.labels, logits=logits)
            self.loss = tf.reduce_mean(losses)
            self.correct = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, 1, tf.int32), self.labels), tf.int32))
            self.train = v1.train.MomentumOptimizer(self.rate, 0.9).minimize(self.loss)
            self.init = v1.global_variables_initializer()

    @staticmethod
    def weights(shape):
        deviation = (2.0 / np.prod(shape[:-1])) ** 0.5
        return v1.Variable(tf.random.truncated_normal(shape, stddev=deviation, seed=SEED), use_resource=True)

    @staticmethod
    def biases(size):
        return v1.Variable(tf.zeros([size]), use_resource=True)


class Progress:
    """A bar that is redrawn on a terminal; elsewhere a line now and then."""

    def __init__(self, total):
        self.total, self.started, self.shown = total, time.monotonic(), 0.0

    def show(self, step, loss):
        now = time.monotonic()
        last = step == self.total
        if now - self.shown < (0.2 if sys.stdout.isatty() else 10) and not last:
            return
        self.shown = now
        filled = 30 * step // self.total
        rate = step / max(now - self.started, 1e-9)
        line = f"[{'#' * filled}{'.' * (30 - filled)}] step {step}/{self.total}  loss {loss:.4f}  {rate:.0f} steps/s"
        end = "" if sys.stdout.isatty() and not last else "\n"
        print(f"\r{line}" if sys.stdout.isatty() else line, end=end, flush=True)


def batches(digits, batch, epochs):
    """(images, labels) in an order that is the same for every run."""
    rng = np.random.default_rng(SEED)
    count = len(digits.train_labels)
    for _ in range(epochs):
        order = rng.permutation(count)
        for start in range(0, count - batch + 1, batch):
            chosen = order[start : start + batch]
            yield digits.train_images[chosen], digits.train_labels[chosen]


def rate_at(step, total, top):
    """Rises to `top` over the first WARM_UP_STEPS steps, then falls to 0."""
    return top * min((step + 1) / WARM_UP_STEPS, 1 - step / total)


def train(session, model, digits, options, limit=None):
    """Runs the training steps (at most `limit`); returns the losses."""
    total = options.epochs * (len(digits.train_labels) // options.batch)
    progress = Progress(min(total, limit or total))
    session.run(model.init)
    losses = []
    for images, labels in batches(digits, options.batch, options.epochs):
        feeds = {model.images: images, model.labels: labels, model.rate: rate_at(len(losses), total, options.rate)}
        losses.append(float(session.run([model.loss, model.train], feeds)[0]))
        progress.show(len(losses), losses[-1])
        if len(losses) == limit:
            break
    return losses


def accuracy(session, model, digits, batch=500):
    correct = 0
    for start in range(0, len(digits.test_labels), batch):
        part = slice(start, start + batch)
        feeds = {model.images: digits.test_images[part], model.labels: digits.test_labels[part]}
        correct += int(session.run(model.correct, feeds))
    return correct / len(digits.test_labels)


def compare(model, digits, options, losses):
    """Trains the first steps on TensorFlow's own server too; returns whether the losses agree."""
    print(f"the same {COMPARED_STEPS} steps on TensorFlow's own server:", flush=True)
    with Server(TENSORFLOW) as server, v1.Session(server.target, graph=model.graph) as session:
        theirs = train(session, model, digits, options, COMPARED_STEPS)
    worst = max(abs(a - b) for a, b in zip(theirs, losses))
    print(f"largest difference of the loss over {len(theirs)} steps: {worst:.2g}")
    return worst <= LOSS_TOLERANCE


def parse():
    parser = argparse.ArgumentParser(prog="python -m demo.mnist", description=__doc__)
    parser.add_argument("--target", help="grpc://host:port of a server that runs already")
    parser.add_argument("--bin", default=None, help="graphmill binary (else $GRAPHMILL_BIN, else target/release)")
    parser.add_argument("--data", help="folder with MNIST's four idx files, not compressed")
    parser.add_argument("--epochs", type=int, default=None, help="default: 2 for MNIST")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.04, help="largest learning rate")
    parser.add_argument("--compare", action="store_true", help="check the first steps against TensorFlow's server")
    return parser.parse_args()


def main():
    options = parse()
    started = time.monotonic()
    digits = data.load(options.data, ROOT / ".cache")
    print(f"data: {digits.source}")
    if options.epochs is None:
        options.epochs = 2 if digits.is_mnist else 30
    model = Model(digits.train_images.shape[1:])
    server = None if options.target else Server(options.bin or default_binary())
    try:
        target = options.target or server.target
        print(f"server: {target}" + (f", pid {server.pid}" if server else ""), flush=True)
        with v1.Session(target, graph=model.graph) as session:
            losses = train(session, model, digits, options)
            score = accuracy(session, model, digits)
    finally:
        if server:
            server.stop()
    agrees = compare(model, digits, options, losses) if options.compare else True
    print(f"{time.monotonic() - started:.0f} s in all")
    print(f"test accuracy: {score:.4f}")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
