"""Language and speech: word vectors, attention between sequences, and labels without alignment."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import dense, train_on_both

v1 = tf.compat.v1

VOCABULARY = 200


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
