"""Generative models, Gaussian processes and spectrograms."""

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.programs import dense, train_on_both

v1 = tf.compat.v1


def points(step, count=16):
    angle = np.random.default_rng(step).uniform(0, 2 * np.pi, count)
    return {"real:0": np.stack([np.cos(angle), np.sin(angle), angle / 6], 1).astype(np.float32)}


def test_adversaries(server, reference):
    """Two optimizers in turn, each on its own variables."""

    def discriminate(x):
        with v1.variable_scope("discriminator", reuse=v1.AUTO_REUSE):
            return dense(dense(x, 16, "hidden", tf.nn.leaky_relu), 1, "out")

    def build():
        real = v1.placeholder(tf.float32, [None, 3], "real")
        noise = tf.random.uniform([tf.shape(real)[0], 4], -1.0, 1.0)
        with v1.variable_scope("generator"):
            fake = dense(dense(noise, 16, "hidden", tf.nn.relu), 3, "out", tf.tanh)
        real_logits, fake_logits = discriminate(real), discriminate(fake)
        entropy = tf.nn.sigmoid_cross_entropy_with_logits
        d_loss = tf.reduce_mean(entropy(labels=tf.ones_like(real_logits) * 0.9, logits=real_logits)) \
            + tf.reduce_mean(entropy(labels=tf.zeros_like(fake_logits), logits=fake_logits))
        g_loss = tf.reduce_mean(entropy(labels=tf.ones_like(fake_logits), logits=fake_logits))
        d_step = v1.train.AdamOptimizer(0.01, beta1=0.5).minimize(
            d_loss, var_list=v1.trainable_variables("discriminator"))
        with tf.control_dependencies([d_step]):
            again = discriminate(tf.identity(fake))
            g_after = tf.reduce_mean(entropy(labels=tf.ones_like(again), logits=again))
        g_step = v1.train.RMSPropOptimizer(0.01).minimize(g_after, var_list=v1.trainable_variables("generator"))
        return [d_loss, g_loss, noise], g_step

    train_on_both(server, reference, build, [points(step) for step in range(6)], improves=False, atol=2e-4)


def test_gradient_penalty(server, reference):
    """A gradient of a gradient."""

    def build():
        real = v1.placeholder(tf.float32, [None, 3], "real")
        mixed = real * tf.random.uniform([tf.shape(real)[0], 1])
        hidden = dense(mixed, 16, "hidden", tf.nn.elu)
        score = dense(hidden, 1, "out")
        slope = tf.sqrt(tf.reduce_sum(tf.square(tf.gradients(score, mixed)[0]), 1) + 1e-8)
        loss = tf.reduce_mean(tf.square(slope - 1.0))
        return [loss, slope], v1.train.AdamOptimizer(0.02).minimize(loss)

    train_on_both(server, reference, build, [points(step) for step in range(6)], atol=2e-4)


def test_variational_autoencoder(server, reference):
    def build():
        images = v1.placeholder(tf.float32, [None, 8, 8, 1], "images")
        kernel = v1.get_variable("kernel", [3, 3, 1, 4], initializer=v1.glorot_uniform_initializer())
        hidden = tf.nn.relu(tf.nn.conv2d(images, kernel, 2, "SAME"))
        hidden = dense(tf.reshape(hidden, [-1, 64]), 24, "hidden", tf.nn.softplus)
        mean, log_variance = dense(hidden, 4, "mean"), dense(hidden, 4, "variance")
        sample = mean + tf.exp(0.5 * log_variance) * tf.random.normal(tf.shape(mean))
        small = tf.reshape(dense(sample, 64, "seed", tf.nn.relu), [-1, 4, 4, 4])
        up = v1.get_variable("up", [3, 3, 1, 4], initializer=v1.glorot_uniform_initializer())
        logits = tf.nn.conv2d_transpose(small, up, tf.stack([tf.shape(images)[0], 8, 8, 1]), 2, "SAME")
        rebuilt = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=images, logits=logits), [1, 2, 3])
        divergence = -0.5 * tf.reduce_sum(1.0 + log_variance - tf.square(mean) - tf.exp(log_variance), 1)
        loss = tf.reduce_mean(rebuilt + divergence)
        return [loss, sample, tf.sigmoid(logits)], v1.train.AdamOptimizer(0.01).minimize(loss)

    images = (np.random.default_rng(2).random([6, 8, 8, 1]) > 0.7).astype(np.float32)
    train_on_both(server, reference, build, [{"images:0": images}] * 6, atol=3e-4)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32], ids=["float64", "float32"])
def test_gaussian_process_regression(server, reference, dtype):
    def build():
        x = v1.placeholder(dtype, [None], "x")
        y = v1.placeholder(dtype, [None], "y")
        amplitude, length, noise = (
            tf.nn.softplus(v1.get_variable(name, [], dtype, initializer=v1.constant_initializer(start)))
            for name, start in [("amplitude", 0.5), ("length", 0.2), ("noise", -1.0)])

        def covariance(a, b):
            return tf.square(amplitude) * tf.exp(-tf.math.squared_difference(a[:, None], b[None]) / (2.0 * tf.square(length)))

        count = tf.shape(x)[0]
        factor = tf.linalg.cholesky(covariance(x, x) + tf.square(noise) * tf.eye(count, dtype=dtype))
        alpha = tf.linalg.cholesky_solve(factor, y[:, None])
        half = tf.linalg.triangular_solve(factor, y[:, None], lower=True)
        loss = 0.5 * tf.reduce_sum(tf.square(half)) + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor))) \
            + 0.5 * tf.cast(count, dtype) * np.log(2.0 * np.pi)
        query = tf.cast(tf.linspace(-1.0, 1.0, 5), dtype)
        across = covariance(x, query)
        mean = tf.squeeze(tf.matmul(across, alpha, transpose_a=True), 1)
        explained = tf.linalg.triangular_solve(factor, across)
        variance = tf.linalg.diag_part(covariance(query, query)) - tf.reduce_sum(tf.square(explained), 0)
        return [loss, mean, variance], v1.train.AdamOptimizer(0.05).minimize(loss)

    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, 12).astype(dtype.as_numpy_dtype)
    y = (np.sin(4 * x) + 0.1 * rng.standard_normal(12)).astype(dtype.as_numpy_dtype)
    tight = dict(rtol=1e-9, atol=1e-10) if dtype == tf.float64 else dict(rtol=2e-3, atol=2e-4)
    train_on_both(server, reference, build, [{"x:0": x, "y:0": y}] * 5, **tight)


def test_least_squares_and_determinants(server, reference):
    def build():
        a = v1.placeholder(tf.float64, [None, 3], "a")
        b = v1.placeholder(tf.float64, [None, 1], "b")
        scale = v1.get_variable("scale", [3], tf.float64, initializer=v1.ones_initializer())
        design = a * scale
        gram = tf.matmul(design, design, transpose_a=True) + 0.1 * tf.eye(3, dtype=tf.float64)
        weights = tf.linalg.solve(gram, tf.matmul(design, b, transpose_a=True))
        loss = tf.reduce_mean(tf.square(tf.matmul(design, weights) - b)) - 0.01 * tf.linalg.logdet(gram)
        q, r = tf.linalg.qr(design)
        values = tf.linalg.eigvalsh(gram)
        return [loss, weights, tf.matmul(q, r), values, tf.linalg.inv(gram), tf.linalg.svd(design, compute_uv=False)], \
            v1.train.GradientDescentOptimizer(0.1).minimize(loss)

    rng = np.random.default_rng(9)
    feed = {"a:0": rng.standard_normal([8, 3]), "b:0": rng.standard_normal([8, 1])}
    train_on_both(server, reference, build, [feed] * 4, rtol=1e-8, atol=1e-9)


def test_spectrograms(server, reference):
    def build():
        sound = v1.placeholder(tf.float32, [None, 800], "sound")
        spectra = tf.signal.stft(sound, frame_length=128, frame_step=64, fft_length=128)
        power = tf.abs(spectra)
        matrix = tf.signal.linear_to_mel_weight_matrix(20, 65, 8000, 80.0, 3800.0)
        mel = tf.tensordot(power, matrix, 1)
        mel.set_shape([None, None, 20])
        coefficients = tf.signal.mfccs_from_log_mel_spectrograms(tf.math.log(mel + 1e-6))[..., :8]
        back = tf.signal.inverse_stft(
            spectra, 128, 64, window_fn=tf.signal.inverse_stft_window_fn(64, forward_window_fn=tf.signal.hann_window))
        logits = dense(tf.reduce_mean(coefficients, 1), 2, "classes")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 1, 0], logits=logits))
        loss += 1e-3 * tf.reduce_mean(tf.square(back))
        slope = tf.gradients(loss, sound)[0]
        return [loss, power, mel, coefficients, back, slope], v1.train.GradientDescentOptimizer(0.01).minimize(loss)

    rng = np.random.default_rng(6)
    tones = np.sin(np.arange(800) * np.array([[0.1], [0.7], [1.3]])) + 0.1 * rng.standard_normal([3, 800])
    train_on_both(server, reference, build, [{"sound:0": tones.astype(np.float32)}] * 4, atol=2e-4)
