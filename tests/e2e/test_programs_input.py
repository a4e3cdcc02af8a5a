"""Input pipelines that feed a model: queue runners and datasets, from records and pictures on disk."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import agree, fresh_container

v1 = tf.compat.v1

ROWS = 12


def picture(row):
    return (np.random.default_rng(row).random([6, 5, 3]) * 255).astype(np.uint8)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two files of records, each an example with a picture of a lossless format, and the same pictures as JPEG."""
    folder = tmp_path_factory.mktemp("pictures")
    with tf.Graph().as_default(), v1.Session() as session:
        pixels = v1.placeholder(tf.uint8, [None, None, None])
        encoders = [tf.io.encode_png(pixels), tf.io.encode_jpeg(pixels, quality=95)]
        encoded = [session.run(encoders, {pixels: picture(row)}) for row in range(ROWS)]
    records = []
    for part in range(2):
        records.append(str(folder / f"part{part}.tfrecord"))
        with tf.io.TFRecordWriter(records[-1]) as writer:
            for row in range(part * ROWS // 2, (part + 1) * ROWS // 2):
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded[row][0]])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[row % 3])),
                    "weights": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5] * (row % 4)))}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    jpegs = []
    for row in range(ROWS):
        jpegs.append(str(folder / f"{row:02}.jpg"))
        with open(jpegs[-1], "wb") as file:
            file.write(encoded[row][1])
    lines = folder / "rows.csv"
    lines.write_text("x,y\n" + "".join(f"{row},{row * 0.5}\n" for row in range(ROWS)))
    return {"records": records, "jpegs": jpegs, "lines": [str(lines)]}


def parse(serialized):
    parsed = tf.io.parse_single_example(serialized, {
        "image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64),
        "weights": tf.io.VarLenFeature(tf.float32)})
    image = tf.image.decode_png(parsed["image"], channels=3)
    image.set_shape([6, 5, 3])
    return tf.cast(image, tf.float32) / 255.0, parsed["label"], tf.reduce_sum(parsed["weights"].values)


def model(images, labels):
    flat = tf.reshape(images, [-1, 90])
    kernel = v1.get_variable("kernel", [90, 3], initializer=v1.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.matmul(flat, kernel)))
    return loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss)


def through_queues(target, build, most=40):
    """What the steps of a program fed by queue runners fetch until its input ends, read by one thread for each queue."""
    found = []
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        v1.set_random_seed(3)
        fetches = build()
        init = [v1.global_variables_initializer(), v1.local_variables_initializer()]
    with v1.Session(target, graph=graph) as session:
        session.run(init)
        coordinator = tf.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coordinator)
        try:
            while not coordinator.should_stop() and len(found) < most:
                found.append(session.run(fetches))
        except tf.errors.OutOfRangeError:
            found.append("end")
        finally:
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=20)
    return found


def same_through_queues(server, reference, build):
    ours, theirs = (through_queues(place.target, build) for place in (server, reference))
    agree(ours, theirs, 1e-4, 1e-5)
    assert ours[-1] == "end" and len(ours) > 2
    return ours


def test_records_through_queue_runners(server, reference, files):
    def build():
        names = v1.train.string_input_producer(files["records"], num_epochs=2, shuffle=True, seed=4)
        _, serialized = v1.TFRecordReader().read(names)
        image, label, weight = parse(serialized)
        images, labels, weights = v1.train.batch([image, label, weight], 5, capacity=20, allow_smaller_final_batch=True)
        loss, step = model(images, labels)
        with tf.control_dependencies([step]):
            return [loss, labels, weights, tf.identity(images)]

    ours = same_through_queues(server, reference, build)
    assert sum(len(found[1]) for found in ours[:-1]) == 2 * ROWS


def test_shuffled_batches(server, reference, files):
    """The order of a shuffle depends on how full its queue is, so only what arrives is compared, not when."""

    def build():
        names = v1.train.string_input_producer(files["records"], num_epochs=1, shuffle=False)
        _, serialized = v1.TFRecordReader().read(names)
        image, label, _ = parse(serialized)
        images, labels = v1.train.shuffle_batch([image, label], 4, 30, 4, seed=5, allow_smaller_final_batch=True)
        return [images, labels]

    rows = []
    for place in (server, reference):
        found = through_queues(place.target, build)[:-1]
        images, labels = (np.concatenate([step[part] for step in found]) for part in range(2))
        order = np.argsort(images.sum((1, 2, 3)))
        rows.append((images[order], labels[order]))
    agree(*rows)
    assert len(rows[0][1]) == ROWS


def test_a_full_shuffle_queue_gives_the_same_order(server, reference):
    def run(target):
        with tf.Graph().as_default() as graph, graph.container(fresh_container()):
            queue = v1.RandomShuffleQueue(30, 0, [tf.int32], [[]], seed=7)
            fill, take = queue.enqueue_many([tf.range(20)]), queue.dequeue_many(5)
        with v1.Session(target, graph=graph) as session:
            session.run(fill)
            return [session.run(take) for _ in range(4)]

    agree(run(server.target), run(reference.target))


def test_slices_and_lines_through_queue_runners(server, reference, files):
    def build():
        number, text = v1.train.slice_input_producer(
            [tf.range(7), tf.strings.as_string(tf.range(7) * 10)], num_epochs=2, shuffle=True, seed=6)
        names = v1.train.string_input_producer(files["lines"], num_epochs=2, shuffle=False)
        _, line = v1.TextLineReader(skip_header_lines=1).read(names)
        x, y = tf.io.decode_csv(line, [[0], [0.0]])
        index = v1.train.range_input_producer(ROWS, num_epochs=2, seed=8).dequeue()
        first = v1.train.batch([number, text], 3)
        second = v1.train.batch([x, y, index], 4, dynamic_pad=False)
        return first, second

    same_through_queues(server, reference, build)


def test_batches_of_different_lengths(server, reference):
    def build():
        length = v1.train.range_input_producer(9, num_epochs=1, shuffle=False).dequeue()
        row = tf.range(length)
        return v1.train.batch([length, row], 4, dynamic_pad=True, allow_smaller_final_batch=True)

    same_through_queues(server, reference, build)


def from_datasets(target, build, initializable, feed=None):
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        v1.set_random_seed(3)
        dataset, use = build()
        make = v1.data.make_initializable_iterator if initializable else v1.data.make_one_shot_iterator
        iterator = make(dataset)
        fetches = use(*iterator.get_next())
        init = [v1.global_variables_initializer(), *([iterator.initializer] if initializable else [])]
    found = []
    with v1.Session(target, graph=graph) as session:
        session.run(init, feed)
        while len(found) < 40:
            try:
                found.append(session.run(fetches))
            except tf.errors.OutOfRangeError:
                return [*found, "end"]
    return found


def train_step(images, labels, *rest):
    loss, step = model(images, labels)
    with tf.control_dependencies([step]):
        return [loss, tf.identity(images), labels, *rest]


@pytest.mark.parametrize("initializable", [False, True], ids=["one shot", "initializable"])
def test_records_through_a_dataset(server, reference, files, initializable):
    def build():
        dataset = tf.data.TFRecordDataset(files["records"], buffer_size=1 << 16)
        dataset = dataset.map(parse, num_parallel_calls=2).shuffle(7, seed=9).repeat(2).batch(5).prefetch(2)
        return dataset, train_step

    ours, theirs = (from_datasets(place.target, build, initializable) for place in (server, reference))
    agree(ours, theirs)
    assert sum(len(found[2]) for found in ours[:-1]) == 2 * ROWS


def test_jpegs_through_a_dataset(server, reference, files):
    def decode(name, label):
        image = tf.image.decode_jpeg(tf.io.read_file(name), channels=3, dct_method="INTEGER_ACCURATE")
        image = v1.image.resize_bilinear(tf.cast(image, tf.float32)[None] / 255.0, [6, 5], align_corners=True)[0]
        return tf.image.random_flip_left_right(image, seed=3), label

    def build():
        dataset = tf.data.Dataset.from_tensor_slices((files["jpegs"], np.arange(ROWS) % 3)).map(decode)
        return dataset.cache().shuffle(20, seed=2, reshuffle_each_iteration=True).repeat(2).batch(4, drop_remainder=True), train_step

    ours, theirs = (from_datasets(place.target, build, True) for place in (server, reference))
    # Two decoders do not agree in the last levels of 255 where colours are stored at half the resolution.
    agree(ours, theirs, 0, 5 / 255)


def test_a_reinitializable_iterator_and_a_handle(server, reference, files):
    """Training and checking data in turn: by one iterator started on each, and by a handle that is fed."""

    def run(target):
        with tf.Graph().as_default() as graph, graph.container(fresh_container()):
            limit = v1.placeholder(tf.int64, [], "limit")
            training = tf.data.Dataset.range(limit).map(lambda x: x * 2).shuffle(50, seed=1)
            checking = tf.data.Dataset.from_tensor_slices(np.arange(100, 103))
            either = v1.data.Iterator.from_structure(tf.int64, tf.TensorShape([]))
            starts = [either.make_initializer(training), either.make_initializer(checking)]
            handle = v1.placeholder(tf.string, [])
            fed = v1.data.Iterator.from_string_handle(handle, tf.int64, tf.TensorShape([])).get_next()
            one_shot = v1.data.make_one_shot_iterator(checking.repeat())
            other = v1.data.make_initializable_iterator(training)
            element, handles = either.get_next(), [one_shot.string_handle(), other.string_handle()]
        found = []
        with v1.Session(target, graph=graph) as session:
            for start in [*starts, starts[0]]:
                session.run(start, {limit: 6})
                for _ in range(3):
                    found.append(session.run(element))
            session.run(other.initializer, {limit: 4})
            places = session.run(handles)
            for turn in range(8):
                found.append(session.run(fed, {handle: places[turn % 2]}))
        return found

    agree(run(server.target), run(reference.target))


def test_windows_of_text(server, reference, files):
    def build():
        lines = tf.data.TextLineDataset(files["lines"]).skip(1).map(lambda line: tf.io.decode_csv(line, [[0], [0.0]]))
        lines = lines.filter(lambda x, y: tf.not_equal(x % 4, 1)).interleave(
            lambda x, y: tf.data.Dataset.range(tf.cast(x % 3, tf.int64)).map(lambda z: (z, y)), cycle_length=3)
        padded = lines.map(lambda z, y: (tf.fill([z + 1], y), z)).padded_batch(3, ([None], []), (-1.0, np.int64(-1)))
        return tf.data.Dataset.zip((padded, tf.data.Dataset.range(100))), lambda batch, number: [*batch, number]

    ours, theirs = (from_datasets(place.target, build, True) for place in (server, reference))
    agree(ours, theirs)
    assert ours[-1] == "end"
