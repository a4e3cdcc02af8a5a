"""Datasets of the rows of an SQLite database, rebatched datasets, and records in random order."""

import sqlite3

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops.distribute import _LegacyRebatchDataset

from tests.e2e.test_data import elements, same

v1 = tf.compat.v1
Dataset = tf.data.Dataset
ALL = "SELECT name, age, height, note FROM people ORDER BY id"


@pytest.fixture
def database(tmp_path):
    path = str(tmp_path / "people.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, height DOUBLE, note BLOB)")
        rows = [("Ada", 36, 1.65, b"\x00\xff"), ("Alan", 300, 1.8, None), ("Kurt", -7, 1e20, b"text"), (None, None, None, b"")]
        connection.executemany("INSERT INTO people (name, age, height, note) VALUES (?, ?, ?, ?)", rows)
    connection.close()
    return path


@pytest.mark.parametrize("integer", [tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.bool])
def test_types(server, reference, database, integer):
    types = (tf.string, integer, tf.float64, tf.string)
    same(server, reference, lambda: tf.data.experimental.SqlDataset("sqlite", database, ALL, types))


def test_conversions(server, reference, database):
    query = "SELECT age, height, name, '12abc', ' -2.5e1x', 1.75, 123456789012345678 FROM people ORDER BY id"
    types = (tf.string, tf.string, tf.int32, tf.int64, tf.float64, tf.int32, tf.float64)
    same(server, reference, lambda: tf.data.experimental.SqlDataset("sqlite", database, query, types))


def test_changes(server, database):
    query = "INSERT INTO people (name) VALUES ('Grace') RETURNING age"
    found = elements(server.target, lambda: tf.data.experimental.SqlDataset("sqlite", database, query, (tf.int32,)))
    assert found == [(0,), tf.errors.OUT_OF_RANGE]
    found = elements(server.target, lambda: tf.data.experimental.SqlDataset("sqlite", database, "SELECT name FROM people", (tf.string,)))
    assert found[-2] == (b"Grace",)


@pytest.mark.parametrize(
    "query, types",
    [
        ("SELECT nothing FROM people", (tf.string,)),
        ("SELEKT name FROM people", (tf.string,)),
        ("SELECT name FROM people", (tf.string, tf.string)),
    ],
)
def test_bad_queries(server, reference, database, query, types):
    same(server, reference, lambda: tf.data.experimental.SqlDataset("sqlite", database, query, types))


def test_no_database(server, reference, tmp_path):
    """TensorFlow's own server dies of the second row that is asked of a database that cannot be opened."""
    path = str(tmp_path / "none" / "db.sqlite")
    found = elements(server.target, lambda: tf.data.experimental.SqlDataset("sqlite", path, "SELECT 1", (tf.int32,)))
    assert set(found) == {tf.errors.INVALID_ARGUMENT}
    (tmp_path / "text").write_text("this is no database, however one looks at it" * 20)
    path = str(tmp_path / "text")
    same(server, reference, lambda: tf.data.experimental.SqlDataset("sqlite", path, "SELECT name FROM people", (tf.string,)))


def test_another_driver(server, database):
    with pytest.raises(tf.errors.InvalidArgumentError, match="oracle, is not supported by SqlDataset"):
        elements(server.target, lambda: tf.data.experimental.SqlDataset("oracle", database, ALL, (tf.string,)))


@pytest.mark.ours_only
def test_a_query_without_end_is_cancelled(server, tmp_path):
    """TensorFlow's own server goes on with it."""
    query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with v1.Graph().as_default():
        dataset = tf.data.experimental.SqlDataset("sqlite", str(tmp_path / "db"), query, (tf.int64,))
        element = v1.data.make_one_shot_iterator(dataset).get_next()
        with v1.Session(server.target) as session, pytest.raises(tf.errors.DeadlineExceededError):
            session.run(element, options=v1.RunOptions(timeout_in_ms=500))
    assert elements(server.target, lambda: Dataset.range(2)) == [0, 1, tf.errors.OUT_OF_RANGE]


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
def test_parts_of_batches(server, reference, replicas):
    same(server, reference, lambda: _LegacyRebatchDataset(Dataset.range(11).batch(5), replicas))


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("sizes", [2, [1, 4], [3, 0], [20]])
def test_batches_of_sizes(server, reference, sizes, drop):
    same(server, reference, lambda: Dataset.range(11).map(lambda i: (i, [i, i])).batch(4).rebatch(sizes, drop))


def test_bad_batches(server, reference):
    scalars = lambda: Dataset.range(3).map(lambda i: v1.placeholder_with_default(i, None))  # noqa: E731
    same(server, reference, lambda: _LegacyRebatchDataset(scalars(), 2))
    same(server, reference, lambda: scalars().rebatch([2]))
    hidden = lambda *parts: tuple(v1.placeholder_with_default(part, [None]) for part in parts)  # noqa: E731
    uneven = lambda: Dataset.from_tensors((tf.range(3), tf.range(4))).map(hidden)  # noqa: E731
    same(server, reference, lambda: _LegacyRebatchDataset(uneven(), 2))
    same(server, reference, lambda: uneven().rebatch([2]))


def test_records_come_once_an_epoch(server, tmp_path):
    for file in range(3):
        with tf.io.TFRecordWriter(str(tmp_path / f"records-{file}")) as writer:
            for i in range(4 + file):
                writer.write(b"%d/%d" % (file, i))
    expected = sorted(b"%d/%d" % (file, i) for file in range(3) for i in range(4 + file))
    with v1.Graph().as_default():
        records = tf.raw_ops.RecordInput(
            file_pattern=str(tmp_path / "records-[01]*") + "," + str(tmp_path / "records-2"),
            batch_size=5,
            file_buffer_size=6,
            file_parallelism=2,
            file_random_seed=5,
        )
        missing = tf.raw_ops.RecordInput(file_pattern=str(tmp_path / "none-*"), batch_size=1)
        with v1.Session(server.target) as session:
            orders = []
            for _ in range(3):
                epoch = np.concatenate([session.run(records) for _ in range(3)])
                assert sorted(epoch) == expected
                orders.append(list(epoch))
            assert orders[0] != orders[1]
            for _ in range(2):
                with pytest.raises(tf.errors.NotFoundError):
                    session.run(missing)
