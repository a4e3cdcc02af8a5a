"""Traces of steps, as TensorFlow's timeline reads them."""

import json

import tensorflow as tf
from tensorflow.python.client import timeline

v1 = tf.compat.v1


def traced(session, fetch, feeds=None):
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    session.run(fetch, feeds, options=options, run_metadata=metadata)
    return metadata


def test_every_node_is_there_with_its_time_and_output(server):
    x = v1.placeholder(tf.float32, [64, 64], name="x")
    product = tf.matmul(x, x, name="product")
    total = tf.reduce_sum(product, name="total")
    with v1.Session(server.target) as session:
        metadata = traced(session, total, {x: [[1.0] * 64] * 64})
    nodes = {node.node_name: node for stats in metadata.step_stats.dev_stats for node in stats.node_stats}
    assert "_SOURCE" in nodes
    node = nodes["product"]
    assert node.timeline_label.startswith("product = MatMul(")
    assert node.all_start_micros > 1_600_000_000_000_000
    assert node.op_end_rel_nanos > 0
    description = node.output[0].tensor_description
    assert [dim.size for dim in description.shape.dim] == [64, 64]
    assert description.allocation_description.requested_bytes == 64 * 64 * 4


def test_the_timeline_can_be_drawn(server):
    x = v1.placeholder(tf.float32, [], name="x")
    y = tf.while_loop(lambda i: i < 5.0, lambda i: i + x, [0.0])
    with v1.Session(server.target) as session:
        metadata = traced(session, y, {x: 1.0})
    drawn = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True)
    events = json.loads(drawn)["traceEvents"]
    assert any(event.get("name") == "LoopCond" for event in events)


def test_without_a_trace_there_are_no_statistics(server):
    y = tf.add(v1.placeholder_with_default(1.0, []), 1.0)
    with v1.Session(server.target) as session:
        metadata = v1.RunMetadata()
        session.run(y, options=v1.RunOptions(), run_metadata=metadata)
    assert not metadata.HasField("step_stats")
