"""Language models: word vectors, attention between sequences, a transformer, and labels without alignment."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import train_on_both

v1 = tf.compat.v1

VOCABULARY = 200


def dense(x, units, name, activation=None):
    """A dense layer over the last axis."""
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [int(x.shape[-1]), units], initializer=v1.glorot_uniform_initializer())
        bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
        y = tf.nn.bias_add(tf.tensordot(x, kernel, [[x.shape.ndims - 1], [0]]), bias)
    return activation(y) if activation else y


def layer_norm(x, name):
    with v1.variable_scope(name):
        gamma = v1.get_variable("gamma", [int(x.shape[-1])], initializer=v1.ones_initializer())
        beta = v1.get_variable("beta", [int(x.shape[-1])], initializer=v1.zeros_initializer())
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-6)


def skip_grams(step, count=32):
    rng = np.random.default_rng(step)
    words = np.minimum(rng.zipf(1.4, count), VOCABULARY) - 1
    return {"words:0": words.astype(np.int32), "contexts:0": ((words * 7 + 3) % VOCABULARY)[:, None].astype(np.int64)}


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("loss_of", [tf.nn.nce_loss, tf.nn.sampled_softmax_loss], ids=["nce", "sampled softmax"])
def test_word2vec(server, reference, loss_of, resource):
    def build():
        words = v1.placeholder(tf.int32, [None], "words")
        contexts = v1.placeholder(tf.int64, [None, 1], "contexts")
        vectors = v1.get_variable("vectors", initializer=tf.random.uniform([VOCABULARY, 16], -1.0, 1.0))
        weights = v1.get_variable("weights", initializer=tf.random.truncated_normal([VOCABULARY, 16], stddev=0.25))
        biases = v1.get_variable("biases", initializer=tf.zeros([VOCABULARY]))
        embedded = tf.nn.embedding_lookup(vectors, words)
        loss = tf.reduce_mean(loss_of(weights, biases, contexts, embedded, num_sampled=16, num_classes=VOCABULARY))
        step = v1.train.AdagradOptimizer(1.0).minimize(loss)
        norm = tf.sqrt(tf.reduce_sum(tf.square(vectors), 1, keepdims=True))
        similarity = tf.matmul(tf.nn.embedding_lookup(vectors / norm, [1, 5, 9]), vectors / norm, transpose_b=True)
        return [loss], step, similarity

    train_on_both(server, reference, build, [skip_grams(step) for step in range(12)], resource=resource)


def translations(step, batch=4, length=6):
    rng = np.random.default_rng(100 + step)
    source = rng.integers(1, 20, [batch, length])
    lengths = rng.integers(3, length + 1, batch)
    return {"source:0": source.astype(np.int32), "target:0": source[:, ::-1].astype(np.int32),
            "lengths:0": lengths.astype(np.int32)}


@pytest.mark.parametrize("version", [1, 2])
def test_sequence_to_sequence_with_attention(server, reference, version):
    units, words = 12, 20

    def cell(inputs, state, name):
        return dense(tf.concat([inputs, state], -1), units, name, tf.tanh)

    def build():
        source = v1.placeholder(tf.int32, [None, None], "source")
        target = v1.placeholder(tf.int32, [None, None], "target")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
        table = v1.get_variable("table", [words, units], initializer=v1.random_normal_initializer(stddev=0.3))
        time, batch = tf.shape(source)[1], tf.shape(source)[0]
        start = tf.zeros(tf.stack([batch, units]))
        start.set_shape([None, units])
        arrays = [tf.TensorArray(tf.float32, time).unstack(tf.transpose(tf.nn.embedding_lookup(table, ids), [1, 0, 2]))
                  for ids in (source, target)]

        def encode(t, state, outputs):
            inputs = arrays[0].read(t)
            inputs.set_shape([None, units])
            new = tf.where(tf.tile((t < lengths)[:, None], [1, units]), cell(inputs, state, "encoder"), state)
            return t + 1, new, outputs.write(t, new)

        _, state, memory = tf.while_loop(lambda t, *_: t < time, encode, [0, start, tf.TensorArray(tf.float32, time)],
                                         parallel_iterations=4)
        memory = tf.transpose(memory.stack(), [1, 0, 2])
        memory.set_shape([None, None, units])
        keys = dense(memory, units, "keys")
        mask = tf.sequence_mask(lengths, time)

        def decode(t, state, context, logits):
            previous = tf.cond(t > 0, lambda: arrays[1].read(t - 1), lambda: tf.zeros_like(start))
            previous.set_shape([None, units])
            state = cell(tf.concat([previous, context], -1), state, "decoder")
            scores = tf.reduce_sum(tf.tanh(keys + dense(state, units, "query")[:, None]), -1)
            weights = tf.nn.softmax(tf.where(mask, scores, tf.fill(tf.shape(scores), -1e9)))
            context = tf.reduce_sum(weights[:, :, None] * memory, 1)
            return t + 1, state, context, logits.write(t, dense(tf.concat([state, context], -1), words, "out"))

        _, _, _, logits = tf.while_loop(lambda t, *_: t < time, decode, [0, state, start, tf.TensorArray(tf.float32, time)])
        logits = tf.transpose(logits.stack(), [1, 0, 2])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logits))
        optimizer = v1.train.AdamOptimizer(0.01)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
        return [loss, norm], optimizer.apply_gradients(zip(gradients, variables, strict=True))

    if version == 2:
        v1.enable_control_flow_v2()
    try:
        train_on_both(server, reference, build, [translations(0)] * 5, atol=1e-4)
    finally:
        v1.disable_control_flow_v2()


def attention(x, heads, mask, name):
    batch, length, width = tf.shape(x)[0], tf.shape(x)[1], int(x.shape[-1])

    def split(y):
        return tf.transpose(tf.reshape(y, tf.stack([batch, length, heads, width // heads])), [0, 2, 1, 3])

    with v1.variable_scope(name):
        query, key, value = (split(dense(x, width, part)) for part in ("query", "key", "value"))
        scores = tf.matmul(query, key, transpose_b=True) / (width // heads) ** 0.5 + mask
        mixed = tf.matmul(tf.nn.softmax(scores), value)
        return dense(tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), tf.stack([batch, length, width])), width, "out")


def gelu(x):
    return 0.5 * x * (1.0 + tf.math.erf(x / 2.0 ** 0.5))


def encoder(x, mask, layers, heads, rate):
    for number in range(layers):
        with v1.variable_scope(f"layer{number}"):
            attended = tf.nn.dropout(attention(x, heads, mask, "attention"), rate=rate)
            x = layer_norm(x + attended, "norm1")
            hidden = dense(dense(x, 2 * int(x.shape[-1]), "wide", gelu), int(x.shape[-1]), "narrow")
            x = layer_norm(x + tf.nn.dropout(hidden, rate=rate), "norm2")
    return x


def test_a_transformer_that_classifies(server, reference):
    def build():
        words = v1.placeholder(tf.int32, [None, None], "words")
        labels = v1.placeholder(tf.int32, [None], "labels")
        table = v1.get_variable("table", [30, 16])
        position = tf.cast(tf.range(tf.shape(words)[1]), tf.float32)[:, None] / (100.0 ** (tf.range(8.0) / 8.0))
        x = tf.nn.embedding_lookup(table, words) * 4.0 + tf.concat([tf.sin(position), tf.cos(position)], -1)
        mask = tf.cast(tf.equal(words, 0), tf.float32)[:, None, None, :] * -1e9
        x = encoder(x, mask, layers=2, heads=4, rate=0.1)
        logits = dense(tf.reduce_mean(x, 1), 3, "head")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        loss += tf.add_n([1e-4 * tf.nn.l2_loss(variable) for variable in v1.trainable_variables()])
        return [loss, tf.argmax(logits, 1)], v1.train.AdamOptimizer(0.005).minimize(loss)

    words = np.random.default_rng(5).integers(0, 30, [8, 7]).astype(np.int32)
    feeds = [{"words:0": words[:, :5 + step % 3], "labels:0": words[:, 0] % 3} for step in range(8)]
    train_on_both(server, reference, build, feeds, atol=2e-4)


def test_a_masked_language_model(server, reference):
    width, words = 16, 40

    def build():
        ids = v1.placeholder(tf.int32, [None, 8], "ids")
        segments = v1.placeholder(tf.int32, [None, 8], "segments")
        valid = v1.placeholder(tf.float32, [None, 8], "valid")
        places = v1.placeholder(tf.int32, [None, 2], "places")
        labels = v1.placeholder(tf.int32, [None, 2], "labels")
        weights = v1.placeholder(tf.float32, [None, 2], "weights")
        normal = v1.truncated_normal_initializer(stddev=0.1)
        table = v1.get_variable("words", [words, width], initializer=normal)
        kinds = v1.get_variable("kinds", [2, width], initializer=normal)
        positions = v1.get_variable("positions", [8, width], initializer=normal)
        x = tf.gather(table, ids) + tf.gather(kinds, segments)
        x = tf.nn.dropout(layer_norm(x + positions[None], "norm"), rate=0.1)
        x = encoder(x, (1.0 - valid)[:, None, None, :] * -10000.0, layers=2, heads=2, rate=0.1)
        pooled = dense(tf.squeeze(x[:, 0:1], [1]), width, "pooler", tf.tanh)
        flat = places + tf.range(tf.shape(ids)[0])[:, None] * 8
        masked = tf.gather(tf.reshape(x, [-1, width]), tf.reshape(flat, [-1]))
        masked = layer_norm(dense(masked, width, "transform", gelu), "norm_head")
        bias = v1.get_variable("output_bias", [words], initializer=v1.zeros_initializer())
        log_probs = tf.nn.log_softmax(tf.matmul(masked, table, transpose_b=True) + bias)
        each = -tf.reduce_sum(log_probs * tf.one_hot(tf.reshape(labels, [-1]), words), -1)
        share = tf.reshape(weights, [-1])
        masked_loss = tf.reduce_sum(share * each) / (tf.reduce_sum(share) + 1e-5)
        next_loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reduce_max(segments, 1), logits=dense(pooled, 2, "next")))
        loss = masked_loss + next_loss
        count = v1.train.get_or_create_global_step()
        rate = v1.train.polynomial_decay(0.01, count, 20, end_learning_rate=0.0)
        rate = tf.where(count < 2, 0.01 * (tf.cast(count, tf.float32) + 1.0) / 2.0, rate)
        optimizer = v1.train.AdamOptimizer(rate)
        variables = v1.trainable_variables()
        gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
        step = optimizer.apply_gradients(zip(gradients, variables, strict=True), global_step=count)
        return [loss, masked_loss, next_loss, norm], step

    rng = np.random.default_rng(8)
    ids = rng.integers(1, words, [6, 8]).astype(np.int32)
    feed = {"ids:0": ids, "segments:0": (np.arange(48).reshape(6, 8) % 8 > 4).astype(np.int32) * (ids[:, :1] % 2),
            "valid:0": (np.arange(8) < rng.integers(5, 9, 6)[:, None]).astype(np.float32),
            "places:0": np.tile([[1, 3]], [6, 1]).astype(np.int32), "labels:0": ids[:, [1, 3]],
            "weights:0": np.array([[1, 1], [1, 0]] * 3, np.float32)}
    train_on_both(server, reference, build, [feed] * 6, atol=3e-4)


def utterances(step, batch=3, time=9, labels=5):
    rng = np.random.default_rng(step)
    rows = [rng.integers(0, labels, rng.integers(1, 4)) for _ in range(batch)]
    indices = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    return {"sound:0": rng.standard_normal([time, batch, 6]).astype(np.float32),
            "lengths:0": np.array([time, time - 1, time - 2], np.int32),
            "labels/indices:0": np.array(indices, np.int64),
            "labels/values:0": np.concatenate(rows).astype(np.int32),
            "labels/shape:0": np.array([batch, 3], np.int64)}


def test_connectionist_temporal_classification(server, reference):
    def build():
        sound = v1.placeholder(tf.float32, [None, None, 6], "sound")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
        labels = v1.sparse_placeholder(tf.int32, [None, None], "labels")
        logits = dense(dense(sound, 10, "hidden", tf.tanh), 6, "out")
        loss = tf.reduce_mean(v1.nn.ctc_loss(labels, logits, lengths))
        greedy, score = tf.nn.ctc_greedy_decoder(logits, lengths)
        beams, log_probs = v1.nn.ctc_beam_search_decoder(logits, lengths, beam_width=8, top_paths=2)
        distance = tf.reduce_mean(tf.edit_distance(tf.cast(greedy[0], tf.int32), labels))
        dense_beams = [tf.sparse.to_dense(beam, default_value=-1) for beam in beams]
        return [loss, score, log_probs, distance, tf.sparse.to_dense(greedy[0], default_value=-1), dense_beams], \
            v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)

    train_on_both(server, reference, build, [utterances(step % 2) for step in range(9)])


def test_dense_connectionist_temporal_classification(server, reference):
    def build():
        sound = v1.placeholder(tf.float32, [9, 3, 6], "sound")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
        labels = tf.constant([[1, 2, 0], [3, 3, 4], [2, 0, 0]])
        logits = dense(sound, 6, "out")
        loss = tf.reduce_mean(tf.nn.ctc_loss(labels, logits, [2, 3, 1], lengths, blank_index=0))
        return [loss], v1.train.GradientDescentOptimizer(0.1).minimize(loss)

    feeds = [{key: value for key, value in utterances(0).items() if "labels" not in key}] * 4
    train_on_both(server, reference, build, feeds)
