"""Datasets that read and write files."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from tests.e2e.test_data import elements, same

v1 = tf.compat.v1
Dataset = tf.data.Dataset


@pytest.fixture
def lines(tmp_path):
    paths = []
    for i in range(2):
        path = tmp_path / f"lines{i}.txt"
        path.write_bytes(b"".join(b"file %d line %d%s" % (i, j, b"\r\n" if j % 2 else b"\n") for j in range(4)) + b"last")
        paths.append(str(path))
    return paths


def test_lines(server, reference, lines):
    same(server, reference, lambda: tf.data.TextLineDataset(lines))
    found = elements(server.target, lambda: tf.data.TextLineDataset(lines[:1]))
    assert found[:2] == [b"file 0 line 0", b"file 0 line 1"] and found[4] == b"last"


def test_compressed_lines(server, reference, tmp_path):
    path = str(tmp_path / "lines.gz")
    with gzip.open(path, "wb") as file:
        file.write(b"one\ntwo\n\nthree")
    same(server, reference, lambda: tf.data.TextLineDataset(path, compression_type="GZIP"))


def test_a_missing_file(server, reference, tmp_path):
    assert tf.errors.NOT_FOUND in same(server, reference, lambda: tf.data.TextLineDataset(str(tmp_path / "none")))


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_records(server, reference, tmp_path, compression):
    path = str(tmp_path / "records")
    with tf.io.TFRecordWriter(path, compression) as writer:
        for i in range(5):
            writer.write(b"r" * i)
    same(server, reference, lambda: tf.data.TFRecordDataset([path, path], compression_type=compression))


def test_a_broken_record(server, reference, tmp_path):
    path = tmp_path / "records"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"good")
        writer.write(b"bad")
    contents = bytearray(path.read_bytes())
    contents[-6] ^= 1
    path.write_bytes(contents)
    assert tf.errors.DATA_LOSS in same(server, reference, lambda: tf.data.TFRecordDataset(str(path)))


@pytest.mark.parametrize("size", [3 + 5 * 4 + 2, 3 + 5 * 4 + 1])
def test_records_of_one_length(server, reference, tmp_path, size):
    path = tmp_path / "fixed"
    path.write_bytes(bytes(range(size)))
    same(server, reference, lambda: tf.data.FixedLengthRecordDataset(str(path), 4, header_bytes=3, footer_bytes=2))


def test_comma_separated_values(server, reference, tmp_path):
    path = tmp_path / "values.csv"
    path.write_text('a,b,c\n1,"x, ""y""",2.5\n,plain,NA\nnot,a,number\n7,z\n8,\n9,"multi\nline",1e3')
    same(server, reference, lambda: tf.data.experimental.CsvDataset(
        str(path), [tf.constant([4]), tf.constant(["d"]), tf.constant([0.5])], header=True, na_value="NA"))
    same(server, reference,
         lambda: tf.data.experimental.CsvDataset(str(path), [tf.string, tf.float32], header=True, select_cols=[1, 2]))


def test_a_cache_on_disk(server, tmp_path):
    prefix = str(tmp_path / "cache")

    def pipeline():
        return Dataset.range(5).map(lambda x: (x, tf.fill([x], "s"))).cache(prefix)

    first, second = elements(server.target, pipeline), elements(server.target, pipeline)
    assert (tmp_path / "cache.index").exists() and not list(tmp_path.glob("*.lockfile"))
    for mine, other in zip(first, second, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, mine, other)


def test_names_of_files(server, reference, lines):
    pattern = lines[0].replace("0.txt", "*.txt")
    same(server, reference, lambda: Dataset.list_files(pattern, shuffle=False))
