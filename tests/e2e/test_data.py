"""Input pipelines: graphmill's sequences against those of TensorFlow's own server, element by element."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import lost_by_reference

v1 = tf.compat.v1
Dataset = tf.data.Dataset

MOST = 80


def elements(target, build):
    """What an iterator over `build()` gives, up to its end or an error, whose code is the last entry."""
    with tf.Graph().as_default() as graph:
        iterator = v1.data.make_initializable_iterator(build())
        element = iterator.get_next()
    found = []
    with v1.Session(target, graph=graph) as session:
        session.run(iterator.initializer)
        for _ in range(MOST):
            try:
                found.append(session.run(element))
            except tf.errors.OpError as error:
                if lost_by_reference(error):
                    raise
                found.append(error.error_code)
                if error.error_code == tf.errors.OUT_OF_RANGE or len(found) > 20:
                    break
    return found


def same(server, reference, build):
    ours, theirs = elements(server.target, build), elements(reference.target, build)
    assert len(ours) == len(theirs), (ours, theirs)
    for mine, other in zip(ours, theirs, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, mine, other)
    return ours


def letters(n):
    return tf.constant(list("abcdefghijklmnop"[:n]))


PIPELINES = {
    "range": lambda: Dataset.range(3, 12, 2),
    "range down": lambda: Dataset.range(5, -1, -2),
    "range of floats": lambda: Dataset.range(4, output_type=tf.float32),
    "tensors": lambda: Dataset.from_tensors((tf.constant([1, 2]), tf.constant("x"))),
    "slices": lambda: Dataset.from_tensor_slices({"a": tf.reshape(tf.range(12), [4, 3]), "b": letters(4)}),
    "take and skip": lambda: Dataset.range(10).skip(2).take(5),
    "take all": lambda: Dataset.range(3).take(-1),
    "skip all": lambda: Dataset.range(3).skip(-1),
    "repeat": lambda: Dataset.range(3).repeat(2),
    "repeat for ever": lambda: Dataset.range(3).repeat(),
    "repeat nothing": lambda: Dataset.range(0).repeat(),
    "shard": lambda: Dataset.range(11).shard(4, 2),
    "zip": lambda: Dataset.zip((Dataset.range(4), Dataset.from_tensor_slices(letters(3)))),
    "concatenate": lambda: Dataset.range(2).concatenate(Dataset.range(7, 9)),
    "batch": lambda: Dataset.from_tensor_slices((tf.range(7), letters(7))).batch(3),
    "batch without the rest": lambda: Dataset.range(7).batch(3, drop_remainder=True),
    "batch of different shapes": lambda: Dataset.range(1, 4).map(lambda x: tf.fill([x], x)).batch(2),
    "padded batch": lambda: Dataset.range(1, 6).map(lambda x: (tf.fill([x, 2], x), tf.fill([x], "s"))).padded_batch(
        2, padded_shapes=([None, 3], [None]), padding_values=(tf.constant(-1, tf.int64), "p")),
    "padded batch too small": lambda: Dataset.range(1, 4).map(lambda x: tf.fill([x], x)).padded_batch(2, [2]),
    "unbatch": lambda: Dataset.range(7).batch(3).unbatch(),
    "window": lambda: Dataset.range(10).window(3, 2, 1).flat_map(lambda window: window.batch(3)),
    "window with gaps": lambda: Dataset.range(20).window(2, 5, 2, True).flat_map(lambda window: window.batch(2)),
    "map": lambda: Dataset.range(5).map(lambda x: (x * x, tf.cast(x, tf.float32) / 2)),
    "map in parallel": lambda: Dataset.range(40).map(lambda x: x * 3, num_parallel_calls=4),
    "map that fails": lambda: Dataset.range(4).map(lambda x: tf.debugging.check_numerics(1 / tf.cast(x - 1, tf.float32), "m")),
    "flat map": lambda: Dataset.range(5).flat_map(Dataset.range),
    "interleave": lambda: Dataset.range(1, 6).interleave(
        lambda x: Dataset.from_tensors(x).repeat(x), cycle_length=3, block_length=2),
    "interleave in parallel": lambda: Dataset.range(1, 8).interleave(
        lambda x: Dataset.from_tensors(x).repeat(x), cycle_length=3, block_length=2, num_parallel_calls=3),
    "filter": lambda: Dataset.range(12).filter(lambda x: x % 5 < 2),
    "take while": lambda: Dataset.range(12).take_while(lambda x: x * x < 30),
    "scan": lambda: Dataset.range(6).scan(tf.constant(1, tf.int64), lambda s, x: (s + x, s * x)),
    "enumerate": lambda: Dataset.from_tensor_slices(letters(3)).enumerate(5),
    "cache": lambda: Dataset.range(4).cache().repeat(2),
    "prefetch": lambda: Dataset.range(30).prefetch(3),
    "unique": lambda: Dataset.from_tensor_slices([3, 1, 3, 2, 1]).unique(),
    "ignore errors": lambda: Dataset.range(5).map(
        lambda x: tf.debugging.check_numerics(1 / tf.cast(x - 2, tf.float32), "m")).ignore_errors(),
    "group by window": lambda: Dataset.range(11).group_by_window(
        key_func=lambda x: x % 3, reduce_func=lambda key, window: window.batch(2), window_size=2),
    "choose": lambda: Dataset.choose_from_datasets(
        [Dataset.range(0, 3), Dataset.range(10, 13)], Dataset.from_tensor_slices(tf.constant([1, 0, 0, 1, 1, 1, 0], tf.int64))),
    "shuffle": lambda: Dataset.range(40).shuffle(7, seed=3),
    "shuffle of each pass": lambda: Dataset.range(10).shuffle(4, seed=3).repeat(3),
    "shuffle of all passes": lambda: Dataset.range(10).shuffle(40, seed=3, reshuffle_each_iteration=False).repeat(3),
    "shuffle twice": lambda: Dataset.range(10).shuffle(4, seed=1).shuffle(5, seed=2).batch(3).repeat(2),
    "random": lambda: Dataset.random(seed=4).take(10),
    "sample": lambda: Dataset.sample_from_datasets([Dataset.range(9), Dataset.range(50, 59)], seed=8, weights=[0.3, 0.7]),
    "sparse slices": lambda: v1.data.Dataset.from_sparse_tensor_slices(
        tf.SparseTensor([[0, 1], [2, 0], [2, 2]], tf.constant([1, 2, 3]), [4, 3])),
    "cardinality asserted": lambda: Dataset.range(3).apply(tf.data.experimental.assert_cardinality(4)),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline(server, reference, name):
    assert same(server, reference, PIPELINES[name])


def test_the_end_says_so(server):
    with tf.Graph().as_default() as graph:
        element = v1.data.make_one_shot_iterator(Dataset.range(1)).get_next()
    with v1.Session(server.target, graph=graph) as session:
        assert session.run(element) == 0
        for _ in range(2):
            with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
                session.run(element)


def test_an_iterator_must_be_initialized(server):
    with tf.Graph().as_default() as graph:
        element = v1.data.make_initializable_iterator(Dataset.range(1)).get_next()
    with v1.Session(server.target, graph=graph) as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="has not been initialized"):
            session.run(element)


def test_one_iterator_over_two_datasets(server):
    with tf.Graph().as_default() as graph:
        first, second = Dataset.range(3), Dataset.range(10, 12)
        iterator = v1.data.Iterator.from_structure(tf.int64, [])
        starts, element = [iterator.make_initializer(d) for d in (first, second)], iterator.get_next()
    with v1.Session(server.target, graph=graph) as session:
        session.run(starts[0])
        assert session.run(element) == 0
        session.run(starts[1])
        assert [session.run(element), session.run(element)] == [10, 11]


def test_a_handle_chooses_the_iterator(server):
    with tf.Graph().as_default() as graph:
        iterators = [v1.data.make_one_shot_iterator(Dataset.range(start, 9)) for start in (0, 5)]
        handles = [iterator.string_handle() for iterator in iterators]
        fed = v1.placeholder(tf.string, [])
        element = v1.data.Iterator.from_string_handle(fed, tf.int64, []).get_next()
    with v1.Session(server.target, graph=graph) as session:
        a, b = session.run(handles)
        found = [session.run(element, {fed: handle}) for handle in (a, b, b, a)]
        assert found == [0, 5, 6, 1]
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(element, {fed: b"no handle"})


def test_reduce(server, reference):
    results = []
    for target in (server.target, reference.target):
        with tf.Graph().as_default() as graph:
            total = Dataset.range(100).map(lambda x: x * 2, num_parallel_calls=2).batch(7).prefetch(2).reduce(
                tf.constant(0, tf.int64), lambda state, batch: state + tf.reduce_sum(batch))
        with v1.Session(target, graph=graph) as session:
            results.append(session.run(total))
    assert results[0] == results[1] == 9900


def test_functions_capture_what_the_graph_computes(server):
    with tf.Graph().as_default() as graph:
        factor = v1.placeholder(tf.int64, [])
        iterator = v1.data.make_initializable_iterator(Dataset.range(4).map(lambda x: x * factor))
        element = iterator.get_next()
    with v1.Session(server.target, graph=graph) as session:
        for value in (3, 5):
            session.run(iterator.initializer, {factor: value})
            assert [session.run(element) for _ in range(4)] == [0, value, 2 * value, 3 * value]


def test_a_deadline_ends_a_wait(server):
    with tf.Graph().as_default() as graph:
        looks = {"output_types": [tf.int64], "output_shapes": [[]]}
        slow = tf.raw_ops.SleepDataset(input_dataset=Dataset.range(5)._variant_tensor, sleep_microseconds=tf.constant(60_000_000, tf.int64), **looks)
        slow = tf.raw_ops.PrefetchDataset(input_dataset=slow, buffer_size=tf.constant(1, tf.int64), **looks)
        handle = tf.raw_ops.IteratorV2(shared_name="", container="", **looks)
        start = tf.raw_ops.MakeIterator(dataset=slow, iterator=handle)
        element = tf.raw_ops.IteratorGetNext(iterator=handle, **looks)[0]
    with v1.Session(server.target, graph=graph) as session:
        session.run(start)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(element, options=v1.RunOptions(timeout_in_ms=300))
        session.run(start)


STATEFUL = ["take and skip", "repeat", "shuffle of each pass", "batch", "interleave", "interleave in parallel", "flat map",
            "map in parallel", "prefetch", "cache", "scan", "window", "group by window", "zip", "concatenate", "choose", "unique"]


def drain(session, element):
    found = []
    while len(found) < MOST:
        try:
            found.append(session.run(element))
        except tf.errors.OutOfRangeError:
            break
    return found


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("before", [0, 1, 4, MOST])
def test_a_position_is_saved_and_restored(server, tmp_path, name, before):
    """The rest of a sequence is the same after its position went through a checkpoint into another session."""
    def start():
        graph = tf.Graph()
        with graph.as_default():
            iterator = v1.data.make_initializable_iterator(PIPELINES[name]())
            element = iterator.get_next()
            saver = v1.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
        return graph, iterator, element, saver

    path = str(tmp_path / "position")
    graph, iterator, element, saver = start()
    with v1.Session(server.target, graph=graph) as session:
        session.run(iterator.initializer)
        for _ in range(before):
            try:
                session.run(element)
            except tf.errors.OutOfRangeError:
                break
        saver.save(session, path, write_meta_graph=False)
        rest = drain(session, element)
    graph, iterator, element, saver = start()
    with v1.Session(server.target, graph=graph) as session:
        session.run(iterator.initializer)
        saver.restore(session, path)
        restored = drain(session, element)
    assert len(rest) == len(restored)
    for mine, other in zip(rest, restored, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, mine, other)
