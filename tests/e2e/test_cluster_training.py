"""Training over several tasks, of graphmill alone and mixed with TensorFlow's own servers."""

import contextlib
import functools
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import session_manager

from tests.clusters import Cluster
from tests.e2e.programs import agree, fresh_container

v1 = tf.compat.v1

OURS, THEIRS = "ours", "tensorflow"
MIXES = {
    "alone": {"ps": [OURS], "worker": [OURS, OURS]},
    "tensorflow-ps": {"ps": [THEIRS], "worker": [OURS, OURS]},
    "tensorflow-worker": {"ps": [OURS], "worker": [OURS, THEIRS]},
    "tensorflow-chief": {"ps": [OURS], "worker": [THEIRS, OURS]},
}


@pytest.fixture(scope="module", params=MIXES.values(), ids=MIXES.keys())
def cluster(request):
    """A parameter server and two workers, of which the first is the chief."""
    with Cluster(request.param) as running:
        yield running


@pytest.fixture
def trio():
    """A parameter server and two workers of graphmill for one test, which may end them."""
    with Cluster(MIXES["alone"]) as running:
        yield running


@pytest.fixture(autouse=True)
def prompt_workers(monkeypatch):
    """Workers look every 0.2 s instead of every 30 s whether the chief is done with initialising."""
    made = session_manager.SessionManager.__init__

    @functools.wraps(made)
    def prompt(*args, **kwargs):
        made(*args, **{**kwargs, "recovery_wait_secs": 0.2})

    monkeypatch.setattr(session_manager.SessionManager, "__init__", prompt)


CLASSES, FEATURES = 4, 16


def examples(seed, number=64):
    """Points around the centres of the classes."""
    random = np.random.RandomState(seed)
    centres = np.random.RandomState(0).normal(size=[CLASSES, FEATURES])
    labels = random.randint(CLASSES, size=number)
    return (centres[labels] + random.normal(size=[number, FEATURES]) * 0.4).astype(np.float32), labels.astype(np.int64)


class Classifier:
    """A network with one hidden layer; where its parts are is up to the device scopes around it."""

    def __init__(self, partitioner=None, hidden_device="", output_device=""):
        self.x = v1.placeholder(tf.float32, [None, FEATURES])
        self.y = v1.placeholder(tf.int64, [None])
        seeded = functools.partial(v1.random_uniform_initializer, -0.3, 0.3)
        with v1.device(hidden_device):
            weights = v1.get_variable("hidden", [FEATURES, 12], initializer=seeded(seed=1), partitioner=partitioner)
            hidden = tf.nn.relu(tf.matmul(self.x, tf.convert_to_tensor(weights)))
        with v1.device(output_device):
            weights = v1.get_variable("output", [12, CLASSES], initializer=seeded(seed=2), partitioner=partitioner)
            bias = v1.get_variable("bias", [CLASSES], initializer=v1.zeros_initializer())
            logits = tf.matmul(hidden, tf.convert_to_tensor(weights)) + bias
            self.loss = tf.reduce_mean(v1.losses.sparse_softmax_cross_entropy(self.y, logits))
            self.accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), self.y), tf.float32))

    def feed(self, seed, number=64):
        x, y = examples(seed, number)
        return {self.x: x, self.y: y}


def replica_setter(cluster, worker):
    return v1.train.replica_device_setter(
        cluster=tf.train.ClusterSpec(cluster.addresses), worker_device=f"/job:worker/task:{worker}"
    )


def in_threads(count, work):
    """Runs `work(number)` in so many threads, and raises what one of them raised."""
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # raised below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 150
    while not errors and time.monotonic() < end and any(thread.is_alive() for thread in threads):
        time.sleep(0.02)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)


def values(session, graph):
    """All variables of a graph by name; those that are partitioned as one."""
    with graph.as_default():
        whole = {}
        for variable in v1.trainable_variables():
            name = variable.op.name.split("/part_")[0]
            whole.setdefault(name, []).append(session.run(variable.read_value() if hasattr(variable, "handle") else variable))
    return {name: np.concatenate(parts) for name, parts in whole.items()}


def trained_on_one_task(target, feeds, rate=0.5):
    """The variables after plain gradient descent on one task."""
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        model = Classifier()
        step = v1.train.GradientDescentOptimizer(rate).minimize(model.loss)
        init = v1.global_variables_initializer()
        with v1.Session(target, graph=graph) as session:
            session.run(init)
            for seed in feeds:
                session.run(step, model.feed(seed))
            return values(session, graph)


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_workers_that_train_without_waiting_for_each_other(cluster, resource):
    steps, container = 60, fresh_container()
    accuracies = {}

    def work(number):
        with tf.Graph().as_default() as graph, graph.container(container):
            v1.get_variable_scope().set_use_resource(resource)
            with v1.device(replica_setter(cluster, number)):
                model = Classifier()
                global_step = v1.train.get_or_create_global_step()
                train = v1.train.AdagradOptimizer(0.2, use_locking=True).minimize(model.loss, global_step)
            creator_options = {"is_chief": number == 0, "save_checkpoint_secs": None, "save_summaries_steps": None}
            with v1.train.MonitoredTrainingSession(cluster.target("worker", number), log_step_count_steps=None, **creator_options) as session:
                for at in range(steps):
                    session.run(train, model.feed(1000 * number + at))
                while (done := session.run(global_step)) < 2 * steps:
                    time.sleep(0.05)
                assert done == 2 * steps
                accuracies[number] = session.run(model.accuracy, model.feed(7, 400))

    in_threads(2, work)
    assert accuracies[0] == accuracies[1] > 0.95


def test_workers_that_take_each_step_together(cluster):
    steps, container = 12, fresh_container()
    feed_seed, results = 5, {}

    def work(number):
        with tf.Graph().as_default() as graph, graph.container(container):
            with v1.device(replica_setter(cluster, number)):
                model = Classifier()
                global_step = v1.train.get_or_create_global_step()
                optimizer = v1.train.SyncReplicasOptimizer(
                    v1.train.GradientDescentOptimizer(0.5), replicas_to_aggregate=2, total_num_replicas=2
                )
                train = optimizer.minimize(model.loss, global_step)
                more_tokens = optimizer.get_init_tokens_op(2)
            hooks = [optimizer.make_session_run_hook(number == 0)]
            read = {variable.op.name: tf.identity(variable) for variable in v1.trainable_variables()}
            with v1.train.MonitoredTrainingSession(
                cluster.target("worker", number),
                is_chief=number == 0,
                hooks=hooks,
                save_checkpoint_secs=None,
                save_summaries_steps=None,
                log_step_count_steps=None,
                stop_grace_period_secs=1,
            ) as session:
                while session.run(global_step) < steps:
                    session.run(train, model.feed(feed_seed))
                    results.setdefault(int(session.run(global_step)), session.run(read))
                # The other worker may wait for a token that this one has taken, or may have closed the queue.
                with contextlib.suppress(tf.errors.CancelledError):
                    session.run(more_tokens)

    in_threads(2, work)
    # The same examples on both workers: the mean of both gradients is that of one.
    expected = trained_on_one_task(cluster.target("worker"), [feed_seed] * steps)
    assert steps in results
    agree(results[steps], expected)


def test_one_client_with_replicas_on_both_workers(cluster):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        gradients, models = [], []
        for number in range(2):
            with v1.device(replica_setter(cluster, number)), v1.variable_scope("shared", reuse=number > 0):
                model = Classifier()
                gradients.append(tf.gradients(model.loss, v1.trainable_variables()))
                models.append(model)
        variables = v1.trainable_variables()
        with v1.device("/job:ps/task:0"):
            means = [(first + second) / 2.0 for first, second in zip(*gradients)]
        step = v1.train.GradientDescentOptimizer(0.5).apply_gradients(zip(means, variables))
        init = v1.global_variables_initializer()
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            session.run(init)
            for seed in range(10):
                x, y = examples(seed)
                session.run(step, {models[0].x: x[:32], models[0].y: y[:32], models[1].x: x[32:], models[1].y: y[32:]})
            got = values(session, graph)
    expected = trained_on_one_task(cluster.target("worker"), range(10))
    agree({name.removeprefix("shared/"): value for name, value in got.items()}, expected)


def test_a_model_over_two_tasks_is_the_same_model(cluster):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        model = Classifier(hidden_device="/job:worker/task:1", output_device="/job:ps/task:0")
        step = v1.train.GradientDescentOptimizer(0.5).minimize(model.loss)
        init = v1.global_variables_initializer()
        with v1.Session(cluster.target("worker"), graph=graph) as session:
            session.run(init)
            for seed in range(10):
                session.run(step, model.feed(seed))
            got = values(session, graph)
    agree(got, trained_on_one_task(cluster.target("worker"), range(10)))


def numbered_rows(shape, dtype=None, partition_info=None):
    """The part of [[0, 1], [2, 3], ...] that a part of a variable has."""
    first = partition_info.var_offset[0] * 2
    return tf.reshape(tf.range(first, first + shape[0] * 2, dtype=dtype), shape)


@pytest.mark.parametrize("kinds", [[OURS, OURS], [OURS, THEIRS]], ids=["alone", "tensorflow-ps"])
@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_variables_in_parts_on_two_parameter_servers(kinds, resource, tmp_path):
    with Cluster({"ps": kinds, "worker": [OURS]}) as cluster:
        path = str(tmp_path / "model")
        with tf.Graph().as_default() as graph:
            v1.get_variable_scope().set_use_resource(resource)
            with v1.device(replica_setter(cluster, 0)):
                model = Classifier(partitioner=v1.fixed_size_partitioner(2))
                ids = v1.placeholder(tf.int64, [None])
                with v1.variable_scope("words", partitioner=v1.fixed_size_partitioner(2)):
                    table = v1.get_variable("table", [7, 2], initializer=numbered_rows)
                    rows = v1.nn.embedding_lookup(list(table), ids, partition_strategy="div")
            places = {variable.device for variable in v1.trainable_variables()}
            assert places == {"/job:ps/task:0", "/job:ps/task:1"}
            initial = v1.trainable_variables()
            step = v1.train.GradientDescentOptimizer(0.5).minimize(model.loss + tf.reduce_sum(rows))
            saver = v1.train.Saver(sharded=True)
            init = v1.global_variables_initializer()
            with v1.Session(cluster.target("worker"), graph=graph) as session:
                session.run(init)
                before = values(session, graph)
                saver.save(session, path)
                for seed in range(10):
                    session.run(step, {**model.feed(seed), ids: [1, 5, 5]})
                got = values(session, graph)
                saver.save(session, path)
        table = np.arange(14, dtype=np.float32).reshape(7, 2)
        np.testing.assert_array_equal(before["words/table"], table)
        table[1] -= 5
        table[5] -= 10
        np.testing.assert_array_equal(got.pop("words/table"), table)
        # The checkpoint holds whole variables, which a program on one task reads and trains on.
        reader = v1.train.NewCheckpointReader(path)
        for name, value in got.items():
            np.testing.assert_array_equal(reader.get_tensor(name), value)
        assert len(initial) == 7
        with tf.Graph().as_default() as graph:
            weights = v1.get_variable("words/table", [7, 2])
            v1.get_variable_scope()
            saver = v1.train.Saver([weights])
            with v1.Session(cluster.target("worker"), graph=graph) as session:
                saver.restore(session, path)
                np.testing.assert_array_equal(session.run(weights), table)


class Record(v1.train.SessionRunHook):
    """When sessions were made, and which steps they took."""

    def __init__(self):
        self.sessions = []

    def after_create_session(self, session, coord):
        self.sessions.append(time.monotonic())


def monitored_worker(cluster, number, last, directory, on_step, hook):
    """One worker of a run with checkpoints, until the global step is `last`. Every step returns what it was given, by way of the ps."""
    with tf.Graph().as_default():
        with v1.device(replica_setter(cluster, number)):
            model = Classifier()
            global_step = v1.train.get_or_create_global_step()
            train = v1.train.GradientDescentOptimizer(0.1).minimize(model.loss, global_step)
            given = v1.placeholder(tf.int64, [])
        with v1.device("/job:ps/task:0"):
            passed = given + 1
        with v1.device(f"/job:worker/task:{number}"):
            returned = passed * 2
        with v1.train.MonitoredTrainingSession(
            cluster.target("worker", number),
            is_chief=number == 0,
            checkpoint_dir=directory,
            save_checkpoint_steps=10,
            save_summaries_steps=None,
            log_step_count_steps=None,
            hooks=[v1.train.StopAtStepHook(last_step=last), hook],
            config=v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{number}"]),
            stop_grace_period_secs=2,
        ) as session:
            at = 0
            while not session.should_stop():
                at += 1
                _, back, step, loss = session.run([train, returned, global_step, model.loss], {**model.feed(at), given: at})
                assert back == 2 * (at + 1) and np.isfinite(loss)
                on_step(number, int(step))


def final_step(directory):
    return v1.train.NewCheckpointReader(tf.train.latest_checkpoint(directory)).get_tensor("global_step")


def test_a_monitored_run_of_two_workers(cluster, tmp_path):
    v1.Session.reset(cluster.target("worker"))
    seen = {0: [], 1: []}
    in_threads(2, lambda number: monitored_worker(cluster, number, 60, str(tmp_path), lambda n, s: seen[n].append(s), Record()))
    assert all(steps == sorted(steps) for steps in seen.values())
    # The other worker may be within a step when the last one is counted, and begin one more with a count that it read before.
    assert final_step(str(tmp_path)) in (60, 61, 62)


@pytest.mark.parametrize("victim", [("ps", 0), ("worker", 0), ("worker", 1)], ids=lambda place: "".join(map(str, place)))
def test_a_monitored_run_goes_on_after_a_task_came_back(trio, victim, tmp_path):
    reached, hooks = threading.Event(), [Record(), Record()]
    times = {0: [], 1: []}

    def on_step(number, step):
        times[number].append((time.monotonic(), step))
        if step >= 30:
            reached.set()
        time.sleep(0.01)

    back = []

    def kill():
        assert reached.wait(60)
        trio[victim].process.kill()
        trio[victim].process.wait()
        time.sleep(0.5)
        trio.start(*victim)
        back.append(time.monotonic())
        # A task ends with the thread that has started it.
        over.wait()

    over, killer = threading.Event(), threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        in_threads(2, lambda number: monitored_worker(trio, number, 400, str(tmp_path), on_step, hooks[number]))
    finally:
        over.set()
    killer.join()
    assert final_step(str(tmp_path)) in (400, 401)
    concerned = {("ps", 0): (0, 1), ("worker", 0): (0,), ("worker", 1): (1,)}[victim]
    for number in concerned:
        assert len(hooks[number].sessions) == 2
        again = min(when for when, _ in times[number] if when > back[0])
        assert again - back[0] < 30
