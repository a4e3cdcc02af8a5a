"""Recurrent networks, unrolled in the graph and in loops, under both versions of control flow."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import train_on_both

v1 = tf.compat.v1

WORDS, UNITS, BATCH, LENGTH = 30, 12, 4, 5


class Cell:
    """What `dynamic_rnn` and `static_rnn` ask of a cell. `state_size` is one width, or a tuple of them."""

    def __init__(self, name):
        self.name = name

    output_size = UNITS
    state_size = UNITS

    def zero_state(self, batch, dtype):
        return tf.nest.map_structure(lambda width: tf.zeros(tf.stack([batch, width]), dtype), self.state_size)

    def linear(self, inputs, state, width, name):
        rows = int(inputs.shape[-1]) + int(state.shape[-1])
        with v1.variable_scope(self.name, reuse=v1.AUTO_REUSE):
            kernel = v1.get_variable(f"{name}_kernel", [rows, width], initializer=v1.random_uniform_initializer(-0.3, 0.3))
            bias = v1.get_variable(f"{name}_bias", [width], initializer=v1.constant_initializer(0.1))
        return tf.nn.bias_add(tf.matmul(tf.concat([inputs, state], 1), kernel), bias)


class Lstm(Cell):
    """The basic long short-term memory cell: one matrix for its four gates, and a forget bias of one."""

    state_size = (UNITS, UNITS)

    def __call__(self, inputs, state, scope=None):
        memory, output = state
        entry, new, forget, exit = tf.split(self.linear(inputs, output, 4 * UNITS, "gates"), 4, axis=1)
        memory = memory * tf.sigmoid(forget + 1.0) + tf.sigmoid(entry) * tf.tanh(new)
        output = tf.tanh(memory) * tf.sigmoid(exit)
        return output, (memory, output)


class Gru(Cell):
    def __call__(self, inputs, state, scope=None):
        reset, update = tf.split(tf.sigmoid(self.linear(inputs, state, 2 * UNITS, "gates")), 2, axis=1)
        new = tf.tanh(self.linear(inputs, reset * state, UNITS, "candidate"))
        output = update * state + (1.0 - update) * new
        return output, output


class Stack(Cell):
    """Cells on top of one another, with dropout between them."""

    def __init__(self, cells):
        super().__init__("stack")
        self.cells = cells
        self.state_size = tuple(cell.state_size for cell in cells)

    def __call__(self, inputs, state, scope=None):
        states = []
        for cell, before in zip(self.cells, state, strict=True):
            inputs, after = cell(tf.nn.dropout(inputs, rate=0.1), before)
            states.append(after)
        return inputs, tuple(states)


CELLS = {"lstm": lambda: Lstm("lstm"), "gru": lambda: Gru("gru"), "stack": lambda: Stack([Lstm("low"), Gru("high")])}


@pytest.fixture(params=[1, 2], ids=["control flow v1", "control flow v2"])
def version(request):
    if request.param == 2:
        v1.enable_control_flow_v2()
    yield request.param
    v1.disable_control_flow_v2()


def text(step):
    rng = np.random.default_rng(step % 2)
    words = rng.integers(0, WORDS, [BATCH, LENGTH + 1]).astype(np.int32)
    lengths = rng.integers(2, LENGTH + 1, BATCH).astype(np.int32)
    return {"words:0": words[:, :-1], "next:0": words[:, 1:], "lengths:0": lengths}


def language_model(run_cells):
    """The program of which `run_cells` makes outputs [batch, time, units] from embedded words and lengths."""

    def build():
        words = v1.placeholder(tf.int32, [BATCH, LENGTH], "words")
        following = v1.placeholder(tf.int32, [BATCH, LENGTH], "next")
        lengths = v1.placeholder(tf.int32, [BATCH], "lengths")
        uniform = v1.random_uniform_initializer(-0.3, 0.3)
        table = v1.get_variable("table", [WORDS, UNITS], initializer=uniform)
        outputs, state = run_cells(tf.nn.embedding_lookup(table, words), lengths)
        kernel = v1.get_variable("softmax", [int(outputs.shape[-1]), WORDS], initializer=uniform)
        logits = tf.reshape(tf.matmul(tf.reshape(outputs, [-1, int(outputs.shape[-1])]), kernel), [BATCH, LENGTH, WORDS])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=following, logits=logits)
        weights = tf.sequence_mask(lengths, LENGTH, dtype=tf.float32)
        loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
        variables = v1.trainable_variables()
        gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), 5.0)
        rate = v1.train.exponential_decay(0.5, v1.train.get_or_create_global_step(), 2, 0.9, staircase=True)
        step = v1.train.GradientDescentOptimizer(rate).apply_gradients(
            zip(gradients, variables, strict=True), global_step=v1.train.get_global_step())
        return [loss, norm, state], step

    return build


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_in_a_loop(server, reference, version, cell):
    def run(inputs, lengths):
        # One iteration at a time, for else the dropout of one may draw its numbers before that of another.
        return v1.nn.dynamic_rnn(CELLS[cell](), inputs, sequence_length=lengths, dtype=tf.float32, parallel_iterations=1)

    train_on_both(server, reference, language_model(run), [text(step) for step in range(5)])


def test_both_directions_and_memory_swapped(server, reference, version):
    def run(inputs, lengths):
        outputs, states = v1.nn.bidirectional_dynamic_rnn(
            Gru("forward"), Lstm("backward"), inputs, sequence_length=lengths, dtype=tf.float32, swap_memory=True)
        return tf.concat(outputs, 2), states

    train_on_both(server, reference, language_model(run), [text(step) for step in range(5)])


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_unrolled(server, reference, cell):
    def run(inputs, lengths):
        outputs, state = v1.nn.static_rnn(CELLS[cell](), tf.unstack(inputs, axis=1), dtype=tf.float32)
        return tf.stack(outputs, axis=1), state

    train_on_both(server, reference, language_model(run), [text(step) for step in range(5)])


def test_a_cell_unrolled_over_sequences_of_different_lengths(server, reference, version):
    def run(inputs, lengths):
        outputs, state = v1.nn.static_rnn(Lstm("lstm"), tf.unstack(inputs, axis=1), sequence_length=lengths, dtype=tf.float32)
        return tf.stack(outputs, axis=1), state

    train_on_both(server, reference, language_model(run), [text(step) for step in range(5)])


def test_a_loop_function_that_feeds_itself(server, reference):
    """`raw_rnn` samples its own next inputs."""

    def build():
        table = v1.get_variable("table", [WORDS, UNITS], initializer=v1.random_uniform_initializer(-1.0, 1.0))
        cell = Lstm("lstm")

        def loop(time, output, state, loop_state):
            if output is None:
                return tf.zeros([BATCH], tf.bool), tf.gather(table, [1, 2, 3, 4]), cell.zero_state(BATCH, tf.float32), output, None
            word = tf.argmax(tf.matmul(output, table, transpose_b=True), 1)
            return time >= tf.constant([3, 4, 5, 6]), tf.gather(table, word), state, output, None

        outputs, state, _ = v1.nn.raw_rnn(cell, loop)
        outputs = outputs.stack()
        loss = tf.reduce_mean(tf.square(outputs - 0.5))
        return [loss, outputs, state], v1.train.GradientDescentOptimizer(1.0).minimize(loss)

    train_on_both(server, reference, build, [{}] * 4)
