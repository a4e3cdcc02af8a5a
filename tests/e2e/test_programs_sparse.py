"""Wide and deep models: hashed strings, tables, crosses and sparse embeddings."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import agree, train, train_on_both

v1 = tf.compat.v1

CITIES = ["paris", "rome", "oslo", "lima"]


def people(step, count=6):
    """Rows with a number, a string, a bag of strings of its own length and a label."""
    rng = np.random.default_rng(step)
    cities = rng.choice([*CITIES, "nowhere"], count)
    bags = [rng.choice(["red", "green", "blue", "grey", "pink"], rng.integers(0, 4)) for _ in range(count)]
    indices = [[row, place] for row, bag in enumerate(bags) for place in range(len(bag))]
    age = rng.uniform(10, 70, count).astype(np.float32)
    return {"age:0": age, "city:0": cities.astype(object), "label:0": (age > 40).astype(np.float32),
            "tags/indices:0": np.array(indices, np.int64).reshape(-1, 2),
            "tags/values:0": np.concatenate(bags).astype(object), "tags/shape:0": np.array([count, 3], np.int64)}


def inputs():
    return (v1.placeholder(tf.float32, [None], "age"), v1.placeholder(tf.string, [None], "city"),
            v1.sparse_placeholder(tf.string, [None, 3], "tags"), v1.placeholder(tf.float32, [None], "label"))


@pytest.mark.parametrize("optimizer", ["ftrl", "lazy"])
@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_wide_and_deep_from_raw_operations(server, reference, resource, optimizer):
    def build():
        age, city, tags, label = inputs()
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(CITIES, tf.range(4, dtype=tf.int64)), default_value=4)
        city_ids = table.lookup(city)
        buckets = tf.SparseTensor(tags.indices, tf.strings.to_hash_bucket_fast(tags.values, 13), tags.dense_shape)
        uniform = v1.random_uniform_initializer(-0.1, 0.1)
        wide = v1.get_variable("wide", [13, 1], initializer=v1.zeros_initializer())
        embedding = v1.get_variable("embedding", [13, 4], initializer=uniform)
        cities = v1.get_variable("cities", [5, 3], initializer=uniform)
        decade = tf.cast(tf.raw_ops.Bucketize(input=age, boundaries=[20.0, 30.0, 40.0, 50.0]), tf.int64)
        cross = tf.strings.to_hash_bucket_fast(tf.strings.join([city, tf.strings.as_string(decade)], "_X_"), 17)
        crossed = v1.get_variable("crossed", [17], initializer=v1.zeros_initializer())
        shallow = tf.squeeze(v1.nn.safe_embedding_lookup_sparse(wide, buckets, combiner="sum"), 1) + tf.gather(crossed, cross)
        deep = tf.concat([v1.nn.safe_embedding_lookup_sparse(embedding, buckets, combiner="sqrtn"),
                          tf.nn.embedding_lookup(cities, city_ids), tf.one_hot(decade, 5), age[:, None] / 50.0], 1)
        hidden = v1.get_variable("hidden", [13, 8], initializer=uniform)
        out = v1.get_variable("out", [8, 1], initializer=uniform)
        logits = shallow + tf.squeeze(tf.matmul(tf.nn.relu(tf.matmul(deep, hidden)), out), 1)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))
        first = v1.train.FtrlOptimizer(0.2, l1_regularization_strength=0.001) if optimizer == "ftrl" \
            else v1.train.MomentumOptimizer(0.2, 0.9)
        second = v1.train.AdagradOptimizer(0.1) if optimizer == "ftrl" else v1.train.AdamOptimizer(0.01)
        step = tf.group(first.minimize(loss, var_list=[wide, crossed]),
                        second.minimize(loss, var_list=[embedding, cities, hidden, out]))
        return [loss, city_ids, buckets.values, cross], step

    train_on_both(server, reference, build, [people(step) for step in range(6)], improves=False, resource=resource)


@pytest.mark.parametrize("combiner", ["mean", "sum", "sqrtn"])
def test_partitioned_embeddings_with_weights(server, reference, combiner):
    def build():
        ids = v1.sparse_placeholder(tf.int64, [None, 3], "ids")
        weights = tf.SparseTensor(ids.indices, tf.sqrt(tf.cast(ids.values, tf.float32) + 1.0), ids.dense_shape)
        table = v1.get_variable("table", [11, 4], initializer=v1.random_normal_initializer(),
                                partitioner=v1.fixed_size_partitioner(3))
        pooled = v1.nn.embedding_lookup_sparse(list(table), ids, weights, partition_strategy="div", combiner=combiner)
        loss = tf.reduce_mean(tf.square(pooled - 0.3))
        return [loss, pooled], v1.train.AdagradOptimizer(0.5).minimize(loss)

    feed = {"ids/indices:0": np.array([[0, 0], [0, 1], [1, 0], [2, 0], [2, 2]], np.int64),
            "ids/values:0": np.array([0, 10, 4, 5, 5], np.int64), "ids/shape:0": np.array([3, 3], np.int64)}
    train_on_both(server, reference, build, [feed] * 4)


def test_feature_columns(server, reference):
    def build():
        age, city, tags, label = inputs()
        fc = tf.feature_column
        features = {"age": age[:, None], "city": city[:, None], "tags": tags}
        number = fc.numeric_column("age", normalizer_fn=lambda x: x / 50.0)
        decade = fc.bucketized_column(fc.numeric_column("age"), [20, 30, 40, 50])
        town = fc.categorical_column_with_vocabulary_list("city", CITIES, num_oov_buckets=2)
        tag = fc.categorical_column_with_hash_bucket("tags", 13)
        both = fc.crossed_column(["city", decade], 17)
        logits = v1.feature_column.linear_model(features, [tag, both, town], sparse_combiner="mean")
        deep = v1.feature_column.input_layer(
            features, [number, decade, fc.indicator_column(town), fc.embedding_column(tag, 4)])
        kernel = v1.get_variable("out", [int(deep.shape[-1]), 1], initializer=v1.zeros_initializer())
        logits += tf.matmul(deep, kernel)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label[:, None], logits=logits))
        return [loss, deep], v1.train.FtrlOptimizer(0.1).minimize(loss)

    train_on_both(server, reference, build, [people(step) for step in range(4)], improves=False)


def test_examples_parsed_into_features(server, reference):
    def example(row):
        feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[row, row * 2.0]))}
        if row % 2:
            feature["tags"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a%d" % row] * row))
        feature["y"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[row]))
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    def build():
        serialized = v1.placeholder(tf.string, [None], "serialized")
        parsed = tf.io.parse_example(serialized, {
            "x": tf.io.FixedLenFeature([2], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64),
            "z": tf.io.FixedLenFeature([], tf.float32, 7.0), "tags": tf.io.VarLenFeature(tf.string)})
        tags = parsed["tags"]
        ids = tf.SparseTensor(tags.indices, tf.strings.to_hash_bucket_strong(tags.values, 9, [3, 4]), tags.dense_shape)
        weights = v1.get_variable("weights", [9, 2], initializer=v1.ones_initializer())
        pooled = v1.nn.safe_embedding_lookup_sparse(weights, ids, combiner="mean")
        loss = tf.reduce_mean(tf.square(pooled * parsed["x"] - tf.cast(parsed["y"], tf.float32)[:, None]))
        return [loss, parsed["z"], tf.sparse.to_dense(tags, default_value="")], v1.train.AdagradOptimizer(0.1).minimize(loss)

    train_on_both(server, reference, build, [{"serialized:0": np.array([example(i) for i in range(4)], object)}] * 3)


def test_tables_of_several_kinds(server, reference):
    def build():
        words = v1.placeholder(tf.string, [None], "words")
        mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        vocabulary = tf.lookup.StaticVocabularyTable(
            tf.lookup.KeyValueTensorInitializer(CITIES, tf.range(4, dtype=tf.int64)), num_oov_buckets=3)
        names = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.range(4, dtype=tf.int64), CITIES), default_value="?")
        dense = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, -9.0, empty_key=-1, deleted_key=-2)
        ids = vocabulary.lookup(words)
        with tf.control_dependencies([dense.insert(ids, tf.cast(ids, tf.float32) * 1.5)]):
            found = dense.lookup(tf.range(7, dtype=tf.int64))
        with tf.control_dependencies([found]):
            size = dense.size()
        unique, place, count = tf.unique_with_counts(words)
        fetches = [ids, names.lookup(ids), found, size, unique, place, count]
        with tf.control_dependencies([mutable.insert(words, ids)]):
            fetches += [mutable.lookup(tf.constant(["rome", "x"])), mutable.size()]
        return fetches, None

    feeds = [{"words:0": np.array(words, object)} for words in (["rome", "x", "oslo", "rome"], ["y", "lima"])]
    ours, theirs = (train(place.target, build, feeds) for place in (server, reference))
    agree(ours.steps, theirs.steps)
