"""Models of tf_keras in graph mode: Keras holds a session of the server and fits, evaluates, predicts and saves with it."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tf_keras.api._v1 import keras

from tests.e2e.programs import agree, fresh_container, on_reference

v1 = tf.compat.v1
layers = tf_keras.layers


@pytest.fixture(autouse=True)
def keras_without_a_session():
    yield
    keras.backend.clear_session()


def with_model(place, build, use):
    """What `use` gives for the model that `build` makes, in a session of the server in which Keras runs everything."""
    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        v1.set_random_seed(3)
        tf_keras.utils.set_random_seed(3)
        model = build()
        with v1.Session(place.target, graph=graph) as session:
            keras.backend.set_session(session)
            return use(model, session)


def on_both(server, reference, build, use):
    ours = with_model(server, build, use)
    return ours, on_reference(lambda: with_model(reference, build, use))


NETWORKS = {
    "MobileNetV2": (64, 4, {"alpha": 0.35}),
    "EfficientNetB0": (64, 4, {}),
    "DenseNet121": (64, 4, {}),
    "InceptionV3": (107, 3, {}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_infer_and_train(server, reference, name):
    """Scores, then the loss of a training step and what it changes.

    Normalisation by small batches magnifies what differs in the last digit, so that gradients are compared by their
    size as a whole. Some are zero but for rounding: those of shifts that the next normalisation takes away again.
    """
    side, batch, options = NETWORKS[name]
    images = np.random.default_rng(0).random([batch, side, side, 3]).astype(np.float32)
    labels = np.eye(10, dtype=np.float32)[:batch]

    with tf.Graph().as_default() as graph, graph.container(fresh_container()):
        v1.set_random_seed(3)
        tf_keras.utils.set_random_seed(3)
        model = getattr(tf_keras.applications, name)(input_shape=(side, side, 3), weights=None, classes=10, **options)
        model.compile(tf_keras.optimizers.legacy.SGD(1.0), "categorical_crossentropy")

        def use(place):
            with v1.Session(place.target, graph=graph) as session:
                keras.backend.set_session(session)
                session.run(v1.global_variables_initializer())  # with those of the optimizer, once it has them
                scores = model.predict(images)
                before = session.run(model.weights)
                loss = model.train_on_batch(images, labels)
                after = session.run(model.weights)
                return scores, loss, [new - old for new, old in zip(after, before, strict=True)], before

        ours, theirs = use(server), on_reference(lambda: use(reference))
    agree(ours[0], theirs[0], 1e-3, 1e-5)
    agree(ours[1], theirs[1], 1e-3)
    agree(ours[3], theirs[3], 1e-5, 1e-6)
    norms = [np.linalg.norm(change) for change in theirs[2]]
    apart = [np.linalg.norm(mine - other) for mine, other in zip(ours[2], theirs[2], strict=True)]
    assert np.linalg.norm(apart) < 0.03 * np.linalg.norm(norms)
    for weight, norm, distance in zip(model.weights, norms, apart, strict=True):
        assert distance < 0.2 * norm + 1e-4, weight.name


def images_model():
    """Convolution, normalisation of batches and seeded dropout.

    A shift before a normalisation has a gradient of rounding errors, which Adam would make steps of: hence no such shifts.
    """
    model = tf_keras.Sequential([
        layers.Conv2D(4, 3, use_bias=False, input_shape=(10, 10, 2)), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(),
        layers.SeparableConv2D(6, 3, use_bias=False), layers.BatchNormalization(momentum=0.5), layers.PReLU(), layers.Flatten(),
        layers.Dropout(0.3, seed=5), layers.Dense(8, "gelu", kernel_regularizer="l2"), layers.LayerNormalization(),
        layers.GaussianNoise(0.05, seed=4), layers.Dense(3, "softmax")])
    model.compile(tf_keras.optimizers.legacy.Adam(0.01), "sparse_categorical_crossentropy", ["accuracy"])
    return model, np.random.default_rng(1).random([24, 10, 10, 2]).astype(np.float32)


def recurrent_model(layer):
    def build():
        model = tf_keras.Sequential([
            layers.Masking(0.0, input_shape=(6, 4)), layer(5, return_sequences=True), layers.Bidirectional(layer(4)),
            layers.Dense(3, "softmax")])
        model.compile(tf_keras.optimizers.legacy.RMSprop(0.01), "sparse_categorical_crossentropy", ["accuracy"])
        sequences = np.random.default_rng(2).standard_normal([24, 6, 4]).astype(np.float32)
        sequences[::3, 4:] = 0.0
        return model, sequences
    return build


def words_model():
    """Embedding of masked words, attention and a functional model of two branches."""
    words = tf_keras.Input([7], dtype="int32")
    embedded = layers.Embedding(20, 6, mask_zero=True)(words)
    attended = layers.MultiHeadAttention(2, 3)(embedded, embedded)
    pooled = layers.GlobalAveragePooling1D()(layers.Add()([embedded, attended]))
    convolved = layers.GlobalMaxPooling1D()(layers.Conv1D(5, 3, activation="tanh")(embedded))
    scores = layers.Dense(3, "softmax")(layers.Concatenate()([pooled, convolved]))
    model = tf_keras.Model(words, scores)
    model.compile(tf_keras.optimizers.legacy.Adagrad(0.1), "sparse_categorical_crossentropy",
                  [tf_keras.metrics.SparseTopKCategoricalAccuracy(2)])
    return model, np.random.default_rng(3).integers(0, 20, [24, 7]).astype(np.int32)


MODELS = {
    "images": images_model,
    "words": words_model,
    "lstm": recurrent_model(layers.LSTM),
    "gru": recurrent_model(layers.GRU),
    "simple_rnn": recurrent_model(layers.SimpleRNN),
}


@pytest.mark.parametrize("name", MODELS)
def test_fit_evaluate_and_predict(server, reference, name):
    def use(built, session):
        model, inputs = built
        labels = np.random.default_rng(4).integers(0, 3, [len(inputs)])
        first = model.evaluate(inputs, labels, batch_size=8, verbose=0)
        history = model.fit(inputs, labels, batch_size=8, epochs=4, shuffle=False, verbose=0, validation_split=1 / 3)
        last = model.evaluate(inputs, labels, batch_size=8, verbose=0)
        return first, history.history, last, model.predict(inputs, batch_size=8), model.get_weights()

    ours, theirs = on_both(server, reference, MODELS[name], use)
    agree(ours, theirs, 5e-3, 5e-4)
    assert ours[1]["loss"][-1] < ours[1]["loss"][0]


def test_a_dataset_and_callbacks(server, reference):
    """`fit` from an input pipeline, the learning rate set by a callback between epochs, and an early end."""

    def build():
        model, inputs = images_model()
        data = tf.data.Dataset.from_tensor_slices((inputs, np.arange(len(inputs)) % 3)).repeat().batch(8)
        return model, data

    def use(built, session):
        model, data = built
        callbacks = [
            tf_keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 / (epoch + 1)),
            tf_keras.callbacks.EarlyStopping("loss", min_delta=100.0, patience=2),
            tf_keras.callbacks.TerminateOnNaN(),
        ]
        history = model.fit(data, steps_per_epoch=3, epochs=9, verbose=0, callbacks=callbacks).history
        return history, model.evaluate(data, steps=2, verbose=0), model.predict(data, steps=2)

    ours, theirs = on_both(server, reference, build, use)
    agree(ours, theirs, 5e-3, 5e-4)
    assert len(ours[0]["loss"]) == 3
    np.testing.assert_allclose(ours[0]["lr"], [0.01, 0.005, 0.01 / 3], rtol=1e-6)


@pytest.mark.parametrize("kind", ["h5", "ckpt"])
def test_weights_saved_by_one_server_are_loaded_by_the_other(server, reference, tmp_path, kind):
    """A checkpoint is written by the server, an HDF5 file by the client from what it fetched."""
    path = str(tmp_path / f"weights.{kind}")

    def save(built, session):
        model, inputs = built
        model.fit(inputs, np.arange(len(inputs)) % 3, batch_size=8, epochs=1, shuffle=False, verbose=0)
        model.save_weights(path)
        return model.predict(inputs)

    def load(built, session):
        model, inputs = built
        session.run(v1.global_variables_initializer())
        fresh = model.predict(inputs)
        status = model.load_weights(path)
        if status is not None:
            status.expect_partial().assert_existing_objects_matched()
        return fresh, model.predict(inputs)

    for writer, reader in [(server, reference), (reference, server), (server, server)]:
        saved = on_reference(lambda: with_model(writer, images_model, save))
        fresh, loaded = on_reference(lambda: with_model(reader, images_model, load))
        agree(loaded, saved, 1e-4, 1e-5)
        assert np.abs(fresh - saved).max() > 1e-3


def test_a_saved_model_predicts_the_same(server, reference, tmp_path):
    """Keras exports its trained model; a new session loads it without Keras and runs its signature."""

    def export(built, session):
        model, inputs = built
        model.fit(inputs, np.arange(len(inputs)) % 3, batch_size=8, epochs=1, shuffle=False, verbose=0)
        path = str(tmp_path / session.sess_str.rsplit(b":", 1)[-1].decode())
        v1.saved_model.simple_save(session, path, {"inputs": model.input}, {"scores": model.output})
        return path, inputs, model.predict(inputs)

    def predict(place, path, inputs):
        with tf.Graph().as_default() as graph, graph.container(fresh_container()):
            with v1.Session(place.target, graph=graph) as session:
                meta = v1.saved_model.load(session, ["serve"], path)
                signature = meta.signature_def["serving_default"]
                return session.run(signature.outputs["scores"].name, {signature.inputs["inputs"].name: inputs})

    for writer in (server, reference):
        path, inputs, expected = on_reference(lambda: with_model(writer, images_model, export))
        for reader in (server, reference):
            agree(on_reference(lambda: predict(reader, path, inputs)), expected, 1e-4, 1e-5)


def test_a_model_saved_in_the_eager_way_serves_in_a_session(server, reference, tmp_path):
    """A SavedModel of functions, as Keras of TensorFlow 2 writes it, made by a client process of its own."""
    path = str(tmp_path / "model")
    program = f"""
import numpy as np, tf_keras
from tf_keras import layers
tf_keras.utils.set_random_seed(3)
model = tf_keras.Sequential([layers.Conv2D(3, 3, activation="relu", input_shape=(8, 8, 2)), layers.BatchNormalization(),
                             layers.Reshape((6, 18)), layers.LSTM(4), layers.Dense(3, "softmax")])
model.save({path!r}, save_format="tf")
inputs = np.random.default_rng(1).random([5, 8, 8, 2]).astype(np.float32)
np.save({path!r} + ".npy", model.predict(inputs, verbose=0))
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=120)
    inputs = np.random.default_rng(1).random([5, 8, 8, 2]).astype(np.float32)
    for place in (server, reference):
        with tf.Graph().as_default() as graph, graph.container(fresh_container()):
            with v1.Session(place.target, graph=graph) as session:
                meta = v1.saved_model.load(session, ["serve"], path)
                signature = meta.signature_def["serving_default"]
                (fed,), (fetched,) = signature.inputs.values(), signature.outputs.values()
                got = on_reference(lambda: session.run(fetched.name, {fed.name: inputs}))
        agree(got, np.load(path + ".npy"), 1e-4, 1e-5)
