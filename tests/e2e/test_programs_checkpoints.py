"""What programs keep: checkpoints of one server restored by the other, saved models, and sessions that train by hooks."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import agree, fresh_container

v1 = tf.compat.v1


class Model:
    """A graph of its own with variables of several kinds, an optimizer and a saver."""

    def __init__(self, resource, **saver):
        self.graph = tf.Graph()
        with self.graph.as_default(), self.graph.container(fresh_container()):
            v1.set_random_seed(3)
            v1.get_variable_scope().set_use_resource(resource)
            x = v1.placeholder(tf.float32, [None, 6], "x")
            partitioned = v1.get_variable("partitioned", [6, 5], partitioner=v1.fixed_size_partitioner(3),
                                          initializer=v1.random_normal_initializer())
            bias = v1.get_variable("bias", [5], tf.float32, initializer=v1.zeros_initializer())
            half = v1.get_variable("half", [2, 2], tf.float16, initializer=v1.ones_initializer(), trainable=False)
            names = v1.get_variable("names", initializer=tf.constant(["a", "bc", ""]), trainable=False)
            count = v1.train.get_or_create_global_step()
            self.loss = tf.reduce_mean(tf.square(tf.nn.bias_add(tf.matmul(x, tf.identity(partitioned)), bias) - 1.0))
            grow = half.assign_add([[0.5, 0.25], [1.0, 2.0]])
            rename = names.assign(["x", "y" * 300, "z"])
            with tf.control_dependencies([grow, rename]):
                self.step = v1.train.AdamOptimizer(0.1).minimize(self.loss, global_step=count)
            self.init = v1.global_variables_initializer()
            self.values = {variable.op.name: variable.read_value() for variable in v1.global_variables()}
            self.saver = v1.train.Saver(**saver)

    def session(self, place):
        return v1.Session(place.target, graph=self.graph)


FEED = {"x:0": np.random.default_rng(1).standard_normal([4, 6]).astype(np.float32)}


@pytest.mark.parametrize("options", [{}, {"sharded": True}, {"write_version": v1.train.SaverDef.V1}],
                         ids=["whole", "sharded", "first version"])
@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("ours_first", [True, False], ids=["graphmill saves", "tensorflow saves"])
def test_a_checkpoint_of_one_server_restored_by_the_other(server, reference, tmp_path, ours_first, resource, options):
    first, second = (server, reference) if ours_first else (reference, server)
    saved = Model(resource, **options)
    with saved.session(first) as session:
        session.run(saved.init)
        for _ in range(3):
            session.run(saved.step, FEED)
        prefix = saved.saver.save(session, str(tmp_path / "model"), global_step=3)
        kept = session.run(saved.values)
        on = [session.run([saved.loss, saved.step], FEED)[0] for _ in range(2)]
    assert v1.train.latest_checkpoint(str(tmp_path)) == prefix
    restored = Model(resource, **options)
    with restored.session(second) as session:
        restored.saver.restore(session, prefix)
        agree(session.run(restored.values), kept, 0, 0)
        agree([session.run([restored.loss, restored.step], FEED)[0] for _ in range(2)], on, 1e-4, 1e-6)


def test_a_partitioned_variable_restored_whole_and_cut_otherwise(server, tmp_path):
    saved = Model(True)
    with saved.session(server) as session:
        session.run(saved.init)
        prefix = saved.saver.save(session, str(tmp_path / "model"))
        parts = [session.run(saved.values[f"partitioned/part_{number}"]) for number in range(3)]
    whole = np.concatenate(parts)
    reader = v1.train.NewCheckpointReader(prefix)
    np.testing.assert_array_equal(reader.get_tensor("partitioned"), whole)
    assert reader.get_variable_to_shape_map()["names"] == [3]
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        v1.get_variable("partitioned", [6, 5])
        one = v1.train.Saver()
        with v1.variable_scope("again"):
            halves = v1.get_variable("partitioned", [6, 5], partitioner=v1.fixed_size_partitioner(2))
        two = v1.train.Saver({"partitioned": halves})
        reads = [v1.global_variables()[0], *list(halves)]
    with v1.Session(server.target, graph=graph) as session:
        one.restore(session, prefix)
        two.restore(session, prefix)
        found = session.run(reads)
    np.testing.assert_array_equal(found[0], whole)
    np.testing.assert_array_equal(np.concatenate(found[1:]), whole)


def test_old_checkpoints_are_deleted_and_a_missing_name_is_told(server, tmp_path):
    saved = Model(True, max_to_keep=2)
    with saved.session(server) as session:
        session.run(saved.init)
        for number in range(4):
            saved.saver.save(session, str(tmp_path / "model"), global_step=number)
        assert sorted(path.name for path in tmp_path.glob("*.index")) == ["model-2.index", "model-3.index"]
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        v1.get_variable("absent", [2])
        saver = v1.train.Saver()
    with v1.Session(server.target, graph=graph) as session, pytest.raises(tf.errors.NotFoundError, match="absent"):
        saver.restore(session, str(tmp_path / "model-3"))


def build_saved_model(place, path, simple):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        words = v1.placeholder(tf.string, [None], "words")
        vocabulary = path.parent / "vocabulary.txt"
        vocabulary.write_text("one\ntwo\nthree\n")
        table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
            str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), 3)
        vectors = v1.get_variable("vectors", initializer=np.arange(8, dtype=np.float32).reshape(4, 2))
        scores = tf.nn.softmax(tf.nn.embedding_lookup(vectors, table.lookup(words)) * 0.1, name="scores")
        change = vectors.assign_add(tf.ones([4, 2]) * [0.0, 2.0])
        init = v1.global_variables_initializer()
        tables = v1.tables_initializer()
        builder = None if simple else v1.saved_model.Builder(str(path))
    with v1.Session(place.target, graph=graph) as session:
        session.run([init, tables])
        session.run(change)
        if simple:
            with graph.as_default():
                v1.saved_model.simple_save(session, str(path), {"words": words}, {"scores": scores}, legacy_init_op=tables)
        else:
            with graph.as_default():
                signature = v1.saved_model.predict_signature_def({"words": words}, {"scores": scores})
                builder.add_meta_graph_and_variables(
                    session, ["serve"], {"serving_default": signature}, main_op=tables, clear_devices=True,
                    assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS))
                builder.save()
        return session.run(scores, {words: ["two", "none", "one"]})


def predict(place, path):
    with v1.Session(place.target, graph=tf.Graph()) as session:
        with session.graph.container(fresh_container()):
            meta = v1.saved_model.load(session, ["serve"], str(path))
        signature = meta.signature_def["serving_default"]
        feed = {signature.inputs["words"].name: ["two", "none", "one"]}
        return session.run(signature.outputs["scores"].name, feed)


@pytest.mark.parametrize("simple", [True, False], ids=["simple", "builder"])
def test_a_saved_model(server, reference, tmp_path, simple):
    expected = build_saved_model(reference, tmp_path / "theirs", simple)
    agree(build_saved_model(server, tmp_path / "ours", simple), expected)
    for place, name in itertools.product((server, reference), ("ours", "theirs")):
        agree(predict(place, tmp_path / name), expected)


class Recorder(v1.train.SessionRunHook):
    """Counts the calls of a hook and keeps what it asked to be fetched."""

    def __init__(self):
        self.calls, self.losses = [], []

    def begin(self):
        self.calls.append("begin")

    def after_create_session(self, session, coord):
        self.calls.append("create")

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(v1.get_default_graph().get_tensor_by_name("loss:0"))

    def after_run(self, run_context, run_values):
        self.losses.append(run_values.results)

    def end(self, session):
        self.calls.append("end")


def monitored(place, folder, last_step, container, nan_at=None):
    """Trains until `last_step` from what the folder holds, with all the usual hooks."""
    recorder = Recorder()
    with tf.Graph().as_default() as graph, graph.container(container):
        v1.set_random_seed(3)
        count = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", initializer=tf.random.normal([4], seed=2), use_resource=True)
        before = tf.identity(weights)
        error = tf.reduce_sum(tf.square(before - 2.0))
        loss = error
        if nan_at is not None:
            loss = tf.where(count >= nan_at, float("nan"), loss)
        loss = tf.identity(loss, "loss")
        v1.summary.scalar("loss", loss)
        v1.summary.histogram("weights", before)
        with tf.control_dependencies([loss]):
            step = v1.train.GradientDescentOptimizer(0.1).minimize(error, count)
        hooks = [v1.train.StopAtStepHook(last_step=last_step), v1.train.NanTensorHook(loss), recorder,
                 v1.train.LoggingTensorHook({"loss": loss}, every_n_iter=2),
                 v1.train.StepCounterHook(every_n_steps=2, output_dir=str(folder)),
                 v1.train.CheckpointSaverHook(str(folder), save_steps=3)]
        with v1.train.MonitoredTrainingSession(
                place.target, checkpoint_dir=str(folder), hooks=hooks, save_checkpoint_steps=None,
                save_checkpoint_secs=None, save_summaries_steps=2, stop_grace_period_secs=5) as session:
            while not session.should_stop():
                session.run(step)
    return recorder


def test_a_monitored_session(server, reference, tmp_path):
    results = []
    for place, name in [(server, "ours"), (reference, "theirs")]:
        folder = tmp_path / name
        first = monitored(place, folder, 5, fresh_container())
        assert first.calls == ["begin", "create", "end"] and len(first.losses) == 5
        assert v1.train.latest_checkpoint(str(folder)).endswith("model.ckpt-5")
        resumed = monitored(place, folder, 9, fresh_container())
        assert len(resumed.losses) == 4 and resumed.losses[0] < first.losses[-1]
        summaries = {}
        for path in sorted(folder.glob("events*")):
            for event in v1.train.summary_iterator(str(path)):
                for value in event.summary.value:
                    if value.tag.startswith(("loss", "weights")):
                        summaries[f"{value.tag} {event.step}"] = value.simple_value or value.histo.sum
        results.append((first.losses, resumed.losses, summaries))
    agree(*results, 1e-5, 1e-6)
    assert len(results[0][2]) > 4


def test_a_monitored_session_stops_at_what_is_not_a_number(server, tmp_path):
    with pytest.raises(v1.train.NanLossDuringTrainingError):
        monitored(server, tmp_path / "nan", 9, fresh_container(), nan_at=4)


def test_a_monitored_session_with_a_scaffold_and_queues(server, reference):
    def run(place):
        with tf.Graph().as_default() as graph, graph.container(fresh_container()):
            number = v1.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
            total = v1.get_variable("total", [], tf.int32, initializer=v1.constant_initializer(7))
            add = total.assign_add(number)
            scaffold = v1.train.Scaffold(init_op=v1.global_variables_initializer(), summary_op=None)
            found = []
            with v1.train.MonitoredSession(v1.train.ChiefSessionCreator(scaffold, master=place.target)) as session:
                while not session.should_stop():
                    found.append(session.run(add))
            return found

    ours = run(server)
    assert ours == [7, 8, 10, 13, 17, 22]
    agree(ours, run(reference))
