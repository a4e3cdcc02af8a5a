"""Datasets in files and divided among workers: files written by either server are read by both."""

import os
import struct

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute
from tensorflow.python.data.ops import save_op

from tests.e2e.test_data import elements, same

v1 = tf.compat.v1
Dataset = tf.data.Dataset


def mixed(count=7):
    texts = tf.constant(["text %d" % i * i for i in range(count)])
    rows = tf.reshape(tf.range(count * 3, dtype=tf.float32), [count, 3])
    return Dataset.from_tensor_slices({"a": rows, "b": texts, "c": tf.range(count, dtype=tf.int64)})


def plain(found):
    return [tf.nest.map_structure(lambda value: value.tolist() if hasattr(value, "tolist") else value, e) for e in found]


@pytest.mark.parametrize("compression", ["", "GZIP", "SNAPPY"])
@pytest.mark.parametrize("writer", ["server", "reference"])
def test_saved_by_one_loaded_by_both(writer, compression, server, reference, request, tmp_path):
    target, path = request.getfixturevalue(writer).target, str(tmp_path / "saved")
    with tf.Graph().as_default() as graph:
        saved = mixed().save(path, compression=compression or None, shard_func=lambda e: e["c"] % 3)
    with v1.Session(target, graph=graph) as session:
        session.run(saved)

    def load():
        shards = lambda shards: shards.interleave(lambda shard: shard, cycle_length=3)
        return Dataset.load(path, mixed().element_spec, compression=compression or None, reader_func=shards)

    found = plain(same(server, reference, load))
    by_key = sorted(found[:-1], key=lambda element: element["c"])
    assert by_key == plain(elements(reference.target, mixed))[:-1]
    cardinality = load().cardinality()
    with v1.Session(server.target) as session:
        assert session.run(cardinality) == 7


def test_large_elements_in_one_shard(server, reference, tmp_path):
    path = str(tmp_path / "saved")
    noise = np.random.default_rng(1).standard_normal([3, 200, 300])
    build = lambda: Dataset.from_tensor_slices(tf.constant(noise))
    with tf.Graph().as_default() as graph:
        saved = build().save(path, compression="SNAPPY")
    with v1.Session(server.target, graph=graph) as session:
        session.run(saved)
    assert len(same(server, reference, lambda: Dataset.load(path, build().element_spec, compression="SNAPPY"))) == 4


def test_saved_as_it_passes(server, reference, tmp_path):
    path = str(tmp_path / "saved")
    save = lambda: save_op._SaveDataset(Dataset.range(5), path, lambda x: x % 2, None)
    assert len(elements(server.target, save)) == 6
    assert len(same(server, reference, lambda: Dataset.load(path, tf.TensorSpec([], tf.int64)))) == 6


def test_what_cannot_be_loaded(server, reference, tmp_path):
    def failures(target):
        with tf.Graph().as_default() as graph:
            element = v1.data.make_one_shot_iterator(Dataset.range(1)).get_next()
            missing = Dataset.load(str(tmp_path / "none"), tf.TensorSpec([], tf.int64))._variant_tensor
            bad_shard = Dataset.range(3).save(str(tmp_path / "bad"), shard_func=lambda x: [x, x])
            del element
        codes = []
        with v1.Session(target, graph=graph) as session:
            for fetch in (missing.op, bad_shard):
                with pytest.raises(tf.errors.OpError) as caught:
                    session.run(fetch)
                codes.append((caught.value.error_code, "metadata" in caught.value.message))
        return codes

    assert failures(server.target) == failures(reference.target)


@pytest.mark.parametrize("compression", ["AUTO", "GZIP", None])
def test_snapshots_are_read_in_place_of_the_dataset(server, tmp_path, compression):
    path = str(tmp_path / "snapshot")

    def build(add=0):
        return Dataset.range(6).map(lambda x: x * 2 + add).snapshot(path, compression=compression)

    first = elements(server.target, build)
    (run,) = [entry for entry in os.scandir(path) if entry.is_dir()]
    names = sorted(os.listdir(run.path))
    assert names[-1] == "snapshot.metadata" and len(names) == 2
    stamp = os.stat(os.path.join(run.path, "snapshot.metadata")).st_mtime_ns
    assert elements(server.target, build) == first == [0, 2, 4, 6, 8, 10, tf.errors.OUT_OF_RANGE]
    assert os.stat(os.path.join(run.path, "snapshot.metadata")).st_mtime_ns == stamp
    assert len([entry for entry in os.scandir(path) if entry.is_dir()]) == 1
    # Another dataset has a snapshot of its own.
    assert elements(server.target, lambda: build(add=1))[:2] == [1, 3]
    assert len([entry for entry in os.scandir(path) if entry.is_dir()]) == 2


@pytest.mark.parametrize("writer, reader", [("server", "reference"), ("reference", "server")])
def test_snapshots_of_one_are_read_by_the_other(writer, reader, request, tmp_path):
    path = str(tmp_path / "snapshot")

    def build(count):
        """A snapshot that is known by a number, not by its dataset."""
        dataset = Dataset.range(count).snapshot(path)
        (node,) = [op for op in v1.get_default_graph().get_operations() if op.type == "SnapshotDatasetV2"]
        node._set_attr("hash_valid", v1.AttrValue(b=True))
        node._set_attr("hash", v1.AttrValue(i=17))
        return dataset

    written = elements(request.getfixturevalue(writer).target, lambda: build(4))
    assert elements(request.getfixturevalue(reader).target, lambda: build(9)) == written


def shard(dataset, workers, index, policy=None):
    if policy is not None:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = policy
        dataset = dataset.with_options(options)
    return distribute._AutoShardDataset(dataset, workers, index, num_replicas=workers)


@pytest.fixture
def records(tmp_path):
    paths = []
    for i in range(4):
        paths.append(str(tmp_path / f"records{i}"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for j in range(3):
                writer.write(b"file %d record %d" % (i, j))
    return paths


Policy = tf.data.experimental.AutoShardPolicy
READERS = {
    "interleave": lambda names: Dataset.from_tensor_slices(names).interleave(tf.data.TFRecordDataset, cycle_length=2),
    "flat_map": lambda names: Dataset.from_tensor_slices(names).flat_map(tf.data.TFRecordDataset).repeat(2).batch(2),
    "shuffled names": lambda names: Dataset.from_tensor_slices(names)
    .shuffle(4, seed=3, reshuffle_each_iteration=False)
    .flat_map(tf.data.TFRecordDataset)
    .prefetch(1),
    "zip": lambda names: Dataset.zip((READERS["flat_map"](names), READERS["interleave"](names))),
    "names in a tensor": lambda names: tf.data.TFRecordDataset(names).map(lambda x: x),
    "no files": lambda names: Dataset.range(7).map(lambda x: x + 1).prefetch(2),
    "hint": lambda names: Dataset.range(9).shard(tf.data.experimental.SHARD_HINT, 0).map(lambda x: -x),
}


@pytest.mark.parametrize("policy", [None, Policy.OFF, Policy.AUTO, Policy.FILE, Policy.DATA, Policy.HINT])
@pytest.mark.parametrize("name", READERS)
def test_datasets_are_divided(server, reference, records, name, policy):
    if name == "hint" and policy not in (Policy.HINT,):
        pytest.skip("the hint stands for nothing")
    for index in range(2):
        try:
            theirs = elements(reference.target, lambda: shard(READERS[name](records), 2, index, policy))
        except tf.errors.OpError as error:
            with pytest.raises(type(error)) as caught:
                elements(server.target, lambda: shard(READERS[name](records), 2, index, policy))
            expected = error.message.split("{{node")[0].split("\n")[-1][:60]
            assert expected in caught.value.message
            continue
        ours = elements(server.target, lambda: shard(READERS[name](records), 2, index, policy))
        assert len(ours) == len(theirs), (ours, theirs)
        tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)


def test_more_workers_than_elements(server, reference):
    same(server, reference, lambda: shard(Dataset.range(2), 3, 0))


def lmdb(entries, page_size=4096):
    """A database of one leaf page, with a page of its own for each value that is too large."""
    header = struct.Struct("<QHHHH")
    none = 2**64 - 1

    def meta(number, transaction):
        body = struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 20)
        body += struct.pack("<IHHQQQQQ", page_size, 8, 0, 0, 0, 0, 0, none)
        body += struct.pack("<IHHQQQQQ", 0, 0, 1, 0, 1, len(large), len(entries), 2 if entries else none)
        return (header.pack(number, 0, 8, 0, 0) + body + struct.pack("<QQ", 2 + len(large), transaction)).ljust(page_size, b"\0")

    large = [value for _, value in entries if len(value) > 1000]
    nodes, overflow = [], []
    for key, value in entries:
        flags, stored = 0, value
        if len(value) > 1000:
            flags, stored = 1, struct.pack("<Q", 3 + len(overflow))
            overflow.append((struct.pack("<QHHI", 3 + len(overflow), 0, 4, 1) + value).ljust(page_size, b"\0"))
        node = struct.pack("<HHHH", len(value) & 0xFFFF, len(value) >> 16, flags, len(key)) + key + stored
        nodes.append(node + b"\0" * (len(node) % 2))
    end, pointers, leaf = page_size, [], b""
    for node in nodes:
        end -= len(node)
        pointers.append(end)
        leaf = node + leaf
    pointers = struct.pack(f"<{len(pointers)}H", *pointers)
    start = header.pack(2, 0, 2, 16 + len(pointers), end) + pointers
    leaf = start + b"\0" * (page_size - len(start) - len(leaf)) + leaf
    return meta(0, 1) + meta(1, 2) + leaf + b"".join(overflow)


def databases(names):
    """TensorFlow's own server of today reads no databases any more; the reader's text and codes are those of older ones."""
    raw = tf.raw_ops.LMDBDataset(filenames=names, output_types=[tf.string, tf.string], output_shapes=[[], []])
    return tf.data.experimental.from_variant(raw, (tf.TensorSpec([], tf.string),) * 2)


def test_databases(server, tmp_path):
    entries = [(b"a", b"one"), (b"bc", b""), (b"d", bytes(range(256)) * 8), (b"e", b"four")]
    path = tmp_path / "data.mdb"
    path.write_bytes(lmdb(entries))
    found = elements(server.target, lambda: databases([str(tmp_path), str(path)]))
    assert found == [*entries, *entries, tf.errors.OUT_OF_RANGE]
    with v1.Session(server.target) as session:
        reader = tf.raw_ops.LMDBReader()
        queue = tf.raw_ops.FIFOQueue(component_types=[tf.string], shapes=[[]])
        names = tf.raw_ops.QueueEnqueue(handle=queue, components=[str(path)])
        read = tf.raw_ops.ReaderRead(reader_handle=reader, queue_handle=queue)
        session.run(names)
        session.run(tf.raw_ops.QueueClose(handle=queue))
        assert [tuple(session.run(read)) for _ in entries] == entries
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(read)


def test_no_database(server, tmp_path):
    (tmp_path / "text").write_bytes(b"no database" * 1000)
    for name in ("text", "none"):
        found = elements(server.target, lambda name=name: databases(str(tmp_path / name)))
        assert found[0] == tf.errors.INVALID_ARGUMENT


@pytest.mark.parametrize("compression", ["", "GZIP", "SNAPPY"])
def test_older_snapshots(server, tmp_path, compression):
    path = str(tmp_path / "snapshot")

    def build(mode="auto", count=6, **attrs):
        source = Dataset.range(count)
        raw = tf.raw_ops.SnapshotDataset(
            input_dataset=source._variant_tensor, path=path, output_types=[tf.int64], output_shapes=[[]],
            compression=compression, snapshot_name="own", mode=mode, **attrs,
        )
        return tf.data.experimental.from_variant(raw, tf.TensorSpec([], tf.int64))

    whole = [*range(6), tf.errors.OUT_OF_RANGE]
    assert elements(server.target, lambda: build("read"))[0] == tf.errors.NOT_FOUND
    assert elements(server.target, lambda: build(shard_size_bytes=16)) == whole
    run = next(entry.path for entry in os.scandir(os.path.join(path, "custom-own")) if entry.is_dir())
    assert sorted(os.listdir(run)) == [f"{i:08}.snapshot" for i in range(3)]
    assert elements(server.target, lambda: build("read", count=2)) == whole
    assert elements(server.target, lambda: build("passthrough", count=2)) == [0, 1, tf.errors.OUT_OF_RANGE]
    shuffled = elements(server.target, lambda: build(shuffle_on_read=True, seed=3))
    assert sorted(shuffled[:-1]) == whole[:-1]


@pytest.mark.parametrize("compression", ["", "GZIP", "SNAPPY"])
@pytest.mark.parametrize("reader", ["server", "reference"])
def test_older_snapshots_of_one_are_read_by_the_other(server, reference, tmp_path, reader, compression):
    path = str(tmp_path / "snapshot")
    writer, reader = (reference, server) if reader == "server" else (server, reference)

    def build(mode, count):
        raw = tf.raw_ops.SnapshotDataset(
            input_dataset=mixed(count)._variant_tensor, path=path, output_types=[tf.float32, tf.string, tf.int64],
            output_shapes=[[3], [], []], compression=compression, snapshot_name="own", mode=mode,
        )
        return tf.data.experimental.from_variant(raw, mixed(count).element_spec)

    written = elements(writer.target, lambda: build("write", 5))
    assert len(written) == 6
    assert plain(elements(reader.target, lambda: build("read", 9))) == plain(written)


@pytest.mark.parametrize("kind", ["written", "read", "older written", "older read"])
def test_positions_in_snapshots(server, tmp_path, kind):
    path = str(tmp_path / "snapshot")

    def build():
        if not kind.startswith("older"):
            return Dataset.range(7).snapshot(path)
        raw = tf.raw_ops.SnapshotDataset(
            input_dataset=Dataset.range(7)._variant_tensor, path=path, output_types=[tf.int64], output_shapes=[[]]
        )
        return tf.data.experimental.from_variant(raw, tf.TensorSpec([], tf.int64))

    if kind.endswith("read"):
        elements(server.target, build)
    with tf.Graph().as_default() as graph:
        iterator = v1.data.make_initializable_iterator(build())
        element = iterator.get_next()
        saver = v1.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
    with v1.Session(server.target, graph=graph) as session:
        session.run(iterator.initializer)
        assert [session.run(element) for _ in range(3)] == [0, 1, 2]
        saved = saver.save(session, str(tmp_path / "position"))
    with v1.Session(server.target, graph=graph) as session:
        session.run(iterator.initializer)
        saver.restore(session, saved)
        assert [session.run(element) for _ in range(4)] == [3, 4, 5, 6]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(element)
    # Saving a position begins new files, which a reader takes for one sequence.
    assert elements(server.target, build)[:7] == list(range(7))
