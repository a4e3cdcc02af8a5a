"""Transformers: one that classifies, and one that learns a masked language model."""

import numpy as np
import tensorflow as tf

from tests.e2e.programs import dense, train_on_both

v1 = tf.compat.v1


def layer_norm(x, name):
    with v1.variable_scope(name):
        gamma = v1.get_variable("gamma", [int(x.shape[-1])], initializer=v1.ones_initializer())
        beta = v1.get_variable("beta", [int(x.shape[-1])], initializer=v1.zeros_initializer())
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-6)


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
