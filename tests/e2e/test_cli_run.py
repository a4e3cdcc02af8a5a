"""`graphmill run`: in its own process, on graphmill's server, and on TensorFlow's."""

import json
import os
import signal
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.servers import TENSORFLOW, default_binary

v1 = tf.compat.v1

if default_binary() == TENSORFLOW:
    pytest.skip("these are the commands of graphmill's binary", allow_module_level=True)


@pytest.fixture(params=["here", "graphmill", "tensorflow"])
def place(request):
    """The arguments that say where the graph runs."""
    if request.param == "here":
        return []
    name = {"graphmill": "server", "tensorflow": "reference"}[request.param]
    return ["--target", request.getfixturevalue(name).target]


def command(*args, **options):
    argv = [default_binary(), "run", *map(str, args)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, **options)


def run(*args):
    done = command(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*args):
    """The one line that a failing command prints."""
    done = command(*args)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stdout == "" and done.stderr.startswith("graphmill: "), done.stderr
    return done.stderr


def save(path, graph, as_text=False):
    tf.io.write_graph(graph.as_graph_def(), str(path.parent), path.name, as_text=as_text)
    return path


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """`y = x @ w + b` with variables, an initialiser, a sum and a string."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=np.ones([3, 2], np.float32), use_resource=True)
        y = tf.identity(x @ w + 0.5, name="y")
        tf.reduce_sum(y, name="total")
        tf.split(y, 2, axis=1, name="halves")
        words = v1.placeholder(tf.string, [None], name="words")
        tf.identity(words, name="same")
        tf.strings.length(words, name="lengths")
        v1.global_variables_initializer()
        v1.get_variable("never", initializer=0.0, use_resource=True)
        folder = tmp_path_factory.mktemp("linear")
        v1.train.export_meta_graph(str(folder / "model.meta"), graph=graph)
        save(folder / "model.pbtxt", graph, as_text=True)
        save(folder / "model.pb", graph)
    return folder


def test_arrays_in_and_arrays_out(linear, place, tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    for name in ("model.pb", "model.pbtxt", "model.meta"):
        out = tmp_path / f"{name}.npz"
        run("--graph", linear / name, "--init", "init", "--feed", f"x={tmp_path}/x.npy",
            "--fetch", "y", "--fetch", "total:0", "--out", out, *place)
        with np.load(out) as written:
            np.testing.assert_allclose(written["y"], x @ np.ones([3, 2]) + 0.5)
            np.testing.assert_allclose(written["total:0"], written["y"].sum())
            assert written["y"].dtype == np.float32 and written["total:0"].shape == ()


def test_what_is_printed(linear, place, tmp_path):
    np.savez_compressed(tmp_path / "batch.npz", x=np.zeros([2, 3], np.float32), words=np.array(["a", "bcd", ""]))
    args = ["--graph", linear / "model.pb", "--init", "init", "--feed", tmp_path / "batch.npz", *place]
    text = run(*args, "--fetch", "y", "--fetch", "lengths", "--fetch", "halves:1")
    assert text == "y  float [2,2]\n[[0.5, 0.5],\n [0.5, 0.5]]\nlengths  int32 [3]\n[1, 3, 0]\nhalves:1  float [2,1]\n[[0.5],\n [0.5]]\n"
    fetched = json.loads(run(*args, "--fetch", "same", "--fetch", "y", "--json"))
    assert fetched["same"] == {"dtype": "string", "shape": [3], "values": ["a", "bcd", ""]}
    assert fetched["y"]["values"] == [[0.5, 0.5], [0.5, 0.5]]
    one = ["--graph", linear / "model.pb", "--feed", f"words={tmp_path}/batch.npz:words", "--fetch", "lengths", *place]
    assert json.loads(run(*one, "--json"))["lengths"]["values"] == [1, 3, 0]


NUMPY = [np.float16, np.float32, np.float64, np.complex64, np.complex128, np.bool_, np.int8, np.int16, np.int32, np.int64,
         np.uint8, np.uint16, np.uint32, np.uint64]
RAW = [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4]


def echo(path, dtype):
    with tf.Graph().as_default() as graph:
        tf.identity(v1.placeholder(dtype, name="x"), name="y")
    return save(path, graph)


@pytest.mark.parametrize("dtype", NUMPY + RAW, ids=lambda dtype: np.dtype(dtype).name)
def test_each_type_comes_back(dtype, server, reference, tmp_path):
    graph = echo(tmp_path / "echo.pb", tf.as_dtype(dtype))
    values = np.array([[0, 1, 0], [1, 1, 0]]).astype(dtype)
    if np.dtype(dtype).kind in "fc":
        values[0, 0] = np.nan
    for place in ([], ["--target", server.target], ["--target", reference.target]):
        for value in (values, values[0, 1], values[:0], values.T, np.asfortranarray(values)):
            np.save(tmp_path / "x.npy", value)
            run("--graph", graph, "--feed", f"x={tmp_path}/x.npy", "--fetch", "y", "--out", tmp_path / "y.npy", *place)
            written = np.load(tmp_path / "y.npy")
            # NumPy does not name the types of ml_dtypes: arrays of them are raw bytes in files.
            assert written.dtype == (dtype if dtype in NUMPY else f"V{np.dtype(dtype).itemsize}")
            assert written.shape == value.shape
            assert written.view(dtype).tobytes() == np.ascontiguousarray(value).tobytes()


def test_quantised_numbers_are_integers(place, tmp_path):
    graph = echo(tmp_path / "echo.pb", tf.qint8)
    np.save(tmp_path / "x.npy", np.array([-3, 4], np.int8))
    assert "[-3, 4]" in run("--graph", graph, "--feed", f"x={tmp_path}/x.npy", "--fetch", "y", *place)


def test_strings_and_bytes(place, tmp_path):
    graph = echo(tmp_path / "echo.pb", tf.string)
    args = ["--graph", graph, "--feed", f"x={tmp_path}/x.npy", "--fetch", "y", *place]
    for value in (np.array(["é", "", "long enough"]), np.array([b"\xff\x00a", b""]), np.array(b"scalar"), np.array([], "S")):
        np.save(tmp_path / "x.npy", value)
        run(*args, "--out", tmp_path / "y.npy")
        written = np.load(tmp_path / "y.npy")
        expected = np.char.encode(value, "utf-8") if value.dtype.kind == "U" else value
        assert written.shape == value.shape and (written == expected).all()
    np.save(tmp_path / "x.npy", np.array([b"\xff", b"a"]))
    assert json.loads(run(*args, "--json"))["y"]["values"] == [{"b64": "/w=="}, "a"]


def test_other_orders_of_bytes(tmp_path):
    graph = echo(tmp_path / "echo.pb", tf.float64)
    np.save(tmp_path / "x.npy", np.array([1.5, -2.0], ">f8"))
    assert "[1.5, -2.0]" in run("--graph", graph, "--feed", f"x={tmp_path}/x.npy", "--fetch", "y")


def test_large_arrays(place, tmp_path):
    graph = echo(tmp_path / "echo.pb", tf.float32)
    value = np.arange(25 << 20, dtype=np.float32).reshape(5, -1)
    np.save(tmp_path / "x.npy", value)
    args = ["--graph", graph, "--feed", f"x={tmp_path}/x.npy", "--fetch", "y", *place]
    run(*args, "--out", tmp_path / "y.npy")
    assert (np.load(tmp_path / "y.npy") == value).all()
    assert "..." in run(*args)


def test_files_of_a_folder(linear, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros([1, 3], np.float32))
    args = ["--graph", linear / "model.pb", "--init", "init", "--feed", f"x={tmp_path}/x.npy"]
    args += ["--fetch", "y:0", "--fetch", "halves:1", "--out", tmp_path / "out"]
    assert run(*args) == (
        f"y:0  float [1,2]  {tmp_path}/out/y.npy\nhalves:1  float [1,1]  {tmp_path}/out/halves_1.npy\n"
    )
    assert np.load(tmp_path / "out" / "halves_1.npy").tolist() == [[0.5]]
    assert json.loads(run(*args, "--json"))["y:0"]["file"] == f"{tmp_path}/out/y.npy"


def test_errors_say_what_is_wanted(linear, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros([2, 3], np.float64))
    np.save(tmp_path / "wide.npy", np.zeros([2, 4], np.float32))
    np.save(tmp_path / "object.npy", np.array([None]), allow_pickle=True)
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    (tmp_path / "text.npy").write_text("nothing")
    graph = ["--graph", linear / "model.pb", "--fetch", "y"]
    assert "did you mean total?" in refused("--graph", linear / "model.pb", "--fetch", "totl")
    assert "did you mean words?" in refused(*graph, "--feed", f"word={tmp_path}/x.npy")
    error = refused(*graph, "--feed", f"x={tmp_path}/x.npy")
    assert "float of shape [?,3] is wanted, but there is double of shape [2,3]" in error and 'astype("float32")' in error
    assert "float of shape [?,3] is wanted, but there is float of shape [2,4]" in refused(*graph, "--feed", f"x={tmp_path}/wide.npy")
    assert "|O" in refused(*graph, "--feed", f"x={tmp_path}/object.npy")
    assert "not an .npy file" in refused(*graph, "--feed", f"x={tmp_path}/text.npy")
    assert "several arrays: a, b" in refused(*graph, "--feed", f"x={tmp_path}/two.npz")
    assert "no array c, but: a, b" in refused(*graph, "--feed", f"x={tmp_path}/two.npz:c")
    assert "cannot be read" in refused(*graph, "--feed", f"x={tmp_path}/missing.npy")
    np.save(tmp_path / "good.npy", np.zeros([2, 3], np.float32))
    assert "fed twice" in refused(*graph, "--feed", f"x={tmp_path}/good.npy", "--feed", f"x:0={tmp_path}/good.npy")
    assert "has no outputs" in refused("--graph", linear / "model.pb", "--fetch", "init")
    assert "halves has 2 outputs" in refused("--graph", linear / "model.pb", "--fetch", "halves:2")
    assert "no such file" in refused("--graph", tmp_path / "missing.pb", "--fetch", "y")
    assert "neither a GraphDef nor a MetaGraphDef" in refused("--graph", tmp_path / "x.npy", "--fetch", "y")
    assert ".npz file" in refused("--graph", linear / "model.pb", "--fetch", "y", "--fetch", "x", "--out", tmp_path / "o.npy")
    assert command("--fetch", "y").returncode == 2
    assert command("--graph", "x").returncode == 2
    assert command(*graph, "--feed", "x").returncode == 2


def test_errors_of_the_step(linear, place):
    error = refused("--graph", linear / "model.pb", "--fetch", "lengths", *place)
    assert "INVALID_ARGUMENT: " in error and "You must feed a value for placeholder tensor 'words'" in error
    error = refused("--graph", linear / "model.pb", "--fetch", "never/Read/ReadVariableOp", *place)
    assert "FAILED_PRECONDITION" in error or "NOT_FOUND" in error


def test_a_server_that_is_not_there(linear):
    error = refused("--graph", linear / "model.pb", "--fetch", "y", "--target", "grpc://127.0.0.1:1")
    assert "UNAVAILABLE" in error and "127.0.0.1:1" in error
    assert "write it as grpc://HOST:PORT" in refused("--graph", linear / "model.pb", "--fetch", "y", "--target", "http://x/y")


@pytest.fixture
def waiting(tmp_path):
    """A step that waits for ever."""
    with tf.Graph().as_default() as graph:
        queue = v1.FIFOQueue(1, [tf.float32], shared_name=f"never_{time.monotonic_ns()}")
        tf.identity(queue.dequeue(), name="y")
    return ["--graph", save(tmp_path / "waits.pb", graph), "--fetch", "y"]


def test_a_deadline_ends_a_step(waiting, place):
    begun = time.monotonic()
    assert "DEADLINE_EXCEEDED" in refused(*waiting, "--timeout", "0.5", *place)
    assert time.monotonic() - begun < 60


def test_control_c_ends_a_step(waiting, place):
    # A shell that runs the tests in the background may have them ignore the signal.
    restore = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    argv = [default_binary(), "run", *map(str, [*waiting, *place])]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, preexec_fn=restore)
    end = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
    process.kill()
    assert process.wait() in (1, -signal.SIGINT), process.stderr.read()
    process.stderr.close()


EXPORT = """
import sys
import numpy as np
import tensorflow as tf

class Model(tf.Module):
    def __init__(self, words):
        self.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))
        self.words = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
            words, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), -1)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
    def linear(self, x):
        return {"y": x @ self.w, "norm": tf.norm(x)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "word")])
    def look_up(self, word):
        return {"number": self.words.lookup(word)}

folder, words = sys.argv[1:]
open(words, "w").write("zero\\none\\ntwo\\n")
model = Model(words)
tf.saved_model.save(model, folder, {"serving_default": model.linear, "look_up": model.look_up})
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model written by TensorFlow 2 as it is used today; in a process of its own, as these tests are programs of version 1."""
    folder = tmp_path_factory.mktemp("exported")
    argv = [sys.executable, "-c", EXPORT, str(folder / "model"), str(folder / "words.txt")]
    subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "TF_USE_LEGACY_KERAS": "0"})
    (folder / "words.txt").unlink()
    return folder / "model"


def test_an_exported_model(exported, place, tmp_path):
    x = np.array([[1, 2, 3], [0, 0, 1]], np.float32)
    np.save(tmp_path / "x.npy", x)
    fetched = json.loads(run("--saved-model", exported, "--feed", f"x={tmp_path}/x.npy", "--json", *place))
    assert sorted(fetched) == ["norm", "y"]
    np.testing.assert_allclose(fetched["y"]["values"], x @ np.arange(6).reshape(3, 2))
    np.save(tmp_path / "word.npy", np.array(["two", "none", "zero"]))
    args = ["--saved-model", exported, "--signature", "look_up", "--feed", f"word={tmp_path}/word.npy", "--fetch", "number"]
    assert json.loads(run(*args, "--json", *place))["number"]["values"] == [2, -1, 0]


def test_errors_of_exported_models(exported, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros([1, 3], np.float32))
    feed = ["--feed", f"x={tmp_path}/x.npy"]
    assert "but: look_up, serving_default" in refused("--saved-model", exported, "--signature", "other", *feed)
    assert "input x of the signature is not fed" in refused("--saved-model", exported)
    assert "there are: norm, y" in refused("--saved-model", exported, *feed, "--fetch", "logits")
    assert "there are: x" in refused("--saved-model", exported, "--feed", f"images={tmp_path}/x.npy")
    assert "{train}, but with {serve}" in refused("--saved-model", exported, "--tag", "train", *feed)
    assert "saved_model.pb" in refused("--saved-model", tmp_path, *feed)
