"""A server with a root for files: no op reads, writes, lists, moves or removes anything outside it."""

import pytest
import tensorflow as tf

from tests.servers import Server, default_binary

v1 = tf.compat.v1
raw = tf.raw_ops
pytestmark = pytest.mark.ours_only


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with `secret` and, beside it, `root` with `inside`, and links out of it."""
    place = tmp_path_factory.mktemp("place")
    root = place / "root"
    root.mkdir()
    (place / "secret").write_bytes(b"a secret\n")
    (root / "inside").write_bytes(b"to be read\n")
    (root / "link").symlink_to(place)
    (root / "link_to_file").symlink_to(place / "secret")
    return place


@pytest.fixture(scope="module")
def rooted(place):
    with Server(default_binary(), options=["--file-root", str(place / "root")]) as server:
        yield server


def first_of(dataset):
    return v1.data.make_one_shot_iterator(dataset).get_next()


def table_from(path):
    table = raw.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name=path)
    return raw.InitializeTableFromTextFileV2(table_handle=table, filename=path, key_index=-2, value_index=-1)


def reader_of(path):
    queue = v1.train.string_input_producer([path], shuffle=False).queue_ref
    with tf.control_dependencies([raw.QueueEnqueueV2(handle=queue, components=[tf.constant(path)])]):
        return v1.WholeFileReader().read(queue)[1]


def summary_to(path):
    writer = raw.SummaryWriter(shared_name=path)
    return raw.CreateSummaryFileWriter(
        writer=writer, logdir=path, max_queue=1, flush_millis=1, filename_suffix="x")


OPS = {
    "ReadFile": lambda path: raw.ReadFile(filename=path),
    "WriteFile": lambda path: raw.WriteFile(filename=path, contents="overwritten"),
    "SaveV2": lambda path: raw.SaveV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], tensors=[tf.ones([2])]),
    "RestoreV2": lambda path: raw.RestoreV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]),
    "MergeV2Checkpoints": lambda path: raw.MergeV2Checkpoints(checkpoint_prefixes=[path], destination_prefix=path),
    "Save": lambda path: raw.Save(filename=path, tensor_names=["a"], data=[tf.ones([2])]),
    "Restore": lambda path: raw.Restore(file_pattern=path, tensor_name="a", dt=tf.float32),
    "TextLineDataset": lambda path: first_of(tf.data.TextLineDataset(path)),
    "TFRecordDataset": lambda path: first_of(tf.data.TFRecordDataset(path)),
    "FixedLengthRecordDataset": lambda path: first_of(tf.data.FixedLengthRecordDataset(path, 2)),
    "InitializeTableFromTextFile": table_from,
    "WholeFileReader": reader_of,
    "CreateSummaryFileWriter": summary_to,
    "PrintV2": lambda path: raw.PrintV2(input="overwritten", output_stream=f"file://{path.removeprefix('file://')}"),
}
PUT_BEHIND = ("CreateSummaryFileWriter", "SaveV2", "Save", "RestoreV2", "MergeV2Checkpoints")
"""These put something behind the name that they are given."""


WAYS = ["../secret", "a/../../secret", "{place}/secret", "link/secret", "link_to_file", "file://{place}/secret"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", OPS)
def test_no_way_out(rooted, place, op, way):
    if op in PUT_BEHIND and way == "link_to_file":
        way = "link/new"
    out = OPS[op](way.format(place=place))
    before = sorted(place.iterdir())
    with v1.Session(rooted.target) as session, pytest.raises(tf.errors.PermissionDeniedError):
        session.run(out)
    assert (place / "secret").read_bytes() == b"a secret\n" and sorted(place.iterdir()) == before


def test_inside_all_is_as_ever(rooted, place):
    with v1.Session(rooted.target) as session:
        for path in ("inside", f"{place}/root/inside", "a/../inside"):
            assert session.run(raw.ReadFile(filename=path)) == b"to be read\n"
        session.run(raw.WriteFile(filename="new/file", contents="text"))
        assert (place / "root" / "new" / "file").read_bytes() == b"text"
        assert session.run(raw.MatchingFiles(pattern="ins*")).tolist() == [b"inside"]


def test_patterns_show_nothing_from_outside(rooted, place):
    for pattern in ("../*", f"{place}/*", "link/*", "/etc/*"):
        with v1.Session(rooted.target) as session:
            try:
                found = session.run(raw.MatchingFiles(pattern=pattern)).tolist()
            except tf.errors.PermissionDeniedError:
                continue
            assert found == []
