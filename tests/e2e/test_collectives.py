"""Operations in which several tasks compute together: graphmill's alone, and with TensorFlow's in both roles."""

import contextlib
import subprocess
import sys
import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import collective_ops

from tests import multi_worker
from tests.servers import ROOT, TENSORFLOW, Server, default_binary, free_port

v1 = tf.compat.v1

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

LEADER = "/job:worker/replica:0/task:0"
SIZES = [1, 5, 32, 40, 64, 3000]
DTYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64]
MIXES = ["ours ours", "ours tensorflow", "tensorflow ours"]


@contextlib.contextmanager
def tasks(kinds, leader=LEADER):
    """Servers of one job; the first leads the groups."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in kinds]
    servers = []
    try:
        for task, kind in enumerate(kinds):
            servers.append(
                Server(
                    TENSORFLOW if kind == "tensorflow" else default_binary(),
                    task=task,
                    cluster={"worker": addresses},
                    port=int(addresses[task].rsplit(":", 1)[1]),
                    options=["--collective-leader", leader] if leader else [],
                )
            )
        yield servers
    finally:
        for server in servers:
            server.stop()


@pytest.fixture(scope="module", params=MIXES)
def pair(request):
    with tasks(request.param.split()) as servers:
        yield servers


@pytest.fixture(scope="module")
def ours():
    with tasks(["ours", "ours"], leader=None) as servers:
        yield servers


KEYS = iter(range(1, 1 << 30))
"""Every test has keys of its own: servers remember groups and operations."""


def device(task):
    return tf.device(f"/job:worker/task:{task}/device:CPU:0")


def values(size, dtype, task):
    return (np.arange(size) % 7 + task + 1).astype(dtype.as_numpy_dtype)


def on_all(count, build):
    """`build(task)` on each task."""
    results = []
    for task in range(count):
        with device(task):
            results.append(build(task))
    return results


def run(server, fetches):
    with v1.Session(server.target, config=v1.ConfigProto(operation_timeout_in_ms=60_000)) as session:
        return session.run(fetches)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_reductions(pair, dtype):
    group, fetches, expected = next(KEYS), [], []
    merges = {"Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}
    for size in SIZES:
        inputs = [values(size, dtype, task) for task in range(2)]
        for merge, final in [("Add", "Id"), ("Add", "Div"), ("Mul", "Id"), ("Min", "Id"), ("Max", "Id")]:
            key = next(KEYS)
            reduce = lambda task: collective_ops.all_reduce(tf.constant(inputs[task]), 2, group, key, merge, final)
            fetches.append(on_all(2, reduce))
            result = merges[merge](*inputs)
            if final == "Div":
                result = result // 2 if dtype.is_integer else result / dtype.as_numpy_dtype(2)
            expected.append(result)
    for got, want in zip(run(pair[0], fetches), expected):
        for one in got:
            np.testing.assert_array_equal(one, want)


@pytest.mark.parametrize("size", SIZES)
def test_operations_that_move_elements(pair, size):
    group = next(KEYS)
    inputs = [values(size, tf.float32, task) for task in range(2)]
    constants = on_all(2, lambda task: tf.constant(inputs[task]))
    gather, rows, other, exchange = (next(KEYS) for _ in range(4))

    def send(source, key):
        def build(task):
            if task == source:
                return collective_ops.broadcast_send(constants[task], [size], tf.float32, 2, group, key)
            return collective_ops.broadcast_recv([size], tf.float32, 2, group, key)

        return on_all(2, build)

    fetches = {
        "gather": on_all(2, lambda task: collective_ops.all_gather(constants[task], 2, group, gather)),
        "gather_v2": on_all(2, lambda task: collective_ops.all_gather_v2(constants[task], 2, group, rows)),
        "from_first": send(0, next(KEYS)),
        "from_second": send(1, next(KEYS)),
        "reduce_v2": on_all(2, lambda task: collective_ops.all_reduce_v2(constants[task], 2, group, other, "Max", "Id")),
        "exchange": on_all(
            2,
            lambda task: collective_ops.all_to_all_v2(
                tf.stack([constants[task], -constants[task]]), 2, group, exchange
            ),
        ),
    }
    got = run(pair[0], fetches)
    for task in range(2):
        np.testing.assert_array_equal(got["gather"][task], np.concatenate(inputs))
        np.testing.assert_array_equal(got["gather_v2"][task], np.concatenate(inputs))
        np.testing.assert_array_equal(got["from_first"][task], inputs[0])
        np.testing.assert_array_equal(got["from_second"][task], inputs[1])
        np.testing.assert_array_equal(got["reduce_v2"][task], np.maximum(*inputs))
        np.testing.assert_array_equal(got["exchange"][task], np.stack(inputs) * (1 - 2 * task))


def test_broadcasts_of_the_second_version(pair):
    group, key = next(KEYS), next(KEYS)

    def build(task):
        if task == 0:
            return collective_ops.broadcast_send_v2(tf.constant([True, False]), 2, group, key)
        return collective_ops.broadcast_recv_v2([2], tf.bool, 2, group, key)

    for got in run(pair[0], on_all(2, build)):
        np.testing.assert_array_equal(got, [True, False])


def test_many_operations_at_once(pair):
    group, count = next(KEYS), 30
    keys = [next(KEYS) for _ in range(count)]
    sums = [
        on_all(2, lambda task: collective_ops.all_reduce(tf.fill([100 * i + 1], float(i + task)), 2, group, key, "Add", "Id"))
        for i, key in enumerate(keys)
    ]
    with v1.Session(pair[1].target, config=v1.ConfigProto(operation_timeout_in_ms=60_000)) as session:
        for _ in range(5):
            for i, totals in enumerate(session.run(sums)):
                for total in totals:
                    np.testing.assert_array_equal(total, np.full([100 * i + 1], 2 * i + 1))


def test_large_tensors(pair):
    group, key, size = next(KEYS), next(KEYS), 1_000_003
    sums = on_all(2, lambda task: collective_ops.all_reduce(tf.fill([size], task + 0.5), 2, group, key, "Add", "Id"))
    for got in run(pair[0], [tf.reduce_sum(total) for total in sums]):
        assert got == pytest.approx(2.0 * size, rel=1e-5)


def test_clients_that_know_nothing_of_each_other(pair):
    """Each client drives its own task; the steps meet by their numbers."""
    group, key, steps = next(KEYS), next(KEYS), 20
    results, problems = {}, []

    def client(task):
        try:
            with tf.Graph().as_default(), device(task):
                x = v1.placeholder(tf.float32, [3])
                total = collective_ops.all_reduce(x * 2.0, 2, group, key, "Add", "Id")
                config = v1.ConfigProto(device_filters=[f"/job:worker/task:{task}"])
                with v1.Session(pair[task].target, config=config) as session:
                    results[task] = [session.run(total, {x: [step, task, 1]}) for step in range(steps)]
        except Exception as error:  # Told to the test.
            problems.append(error)

    threads = [threading.Thread(target=client, args=(task,)) for task in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    for task in range(2):
        np.testing.assert_array_equal(results[task], [[4 * step, 2, 4] for step in range(steps)])


def test_operations_in_loops(ours):
    group, key = next(KEYS), next(KEYS)

    def body(i, first, second):
        reduce = lambda task: collective_ops.all_reduce([first, second][task], 2, group, key, "Add", "Id")
        return [i + 1, *on_all(2, reduce)]

    start = tf.constant([1.0, 2.0])
    for got in run(ours[0], v1.while_loop(lambda i, *_: i < 5, body, [tf.constant(0), start, start])[1:]):
        np.testing.assert_array_equal(got, [32.0, 64.0])


def test_training_on_two_tasks_equals_training_on_the_joined_batch(pair):
    generator = np.random.default_rng(7)
    examples = generator.normal(size=[16, 4]).astype(np.float32)
    targets = generator.normal(size=[16, 1]).astype(np.float32)
    start = generator.normal(size=[4, 1]).astype(np.float32)
    group, key = next(KEYS), next(KEYS)

    def train(weights, x, y, combine):
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        gradient = combine(tf.gradients(loss, weights)[0])
        return weights.assign_sub(0.1 * gradient)

    with tf.Graph().as_default():
        weights = v1.Variable(start)
        step = train(weights, tf.constant(examples), tf.constant(targets), lambda gradient: gradient)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(10):
                expected = session.run(step)

    with tf.Graph().as_default():

        def replica(task):
            part = slice(8 * task, 8 * task + 8)
            average = lambda gradient: collective_ops.all_reduce(gradient, 2, group, key, "Add", "Div")
            variable = v1.Variable(start, name=f"weights_{key}")
            return train(variable, tf.constant(examples[part]), tf.constant(targets[part]), average)

        steps = on_all(2, replica)
        with v1.Session(pair[0].target) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(10):
                got = session.run(steps)
    for weights in got:
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)


def test_the_strategy_for_several_workers(pair):
    """TensorFlow's own training loop over workers that know nothing of each other."""
    addresses = ",".join(server.address for server in pair)
    command = [sys.executable, "-m", "tests.multi_worker"]
    workers = [
        subprocess.Popen([*command, str(task), addresses], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for task in range(2)
    ]
    try:
        first, second = [np.array(worker.communicate(timeout=120)[0].split(), np.float64) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    parts = [multi_worker.examples(task) for task in range(2)]
    weights, expected = np.full([4, 1], multi_worker.START), []
    for _ in range(multi_worker.STEPS):
        errors = [x @ weights - y for x, y in parts]
        expected.append(sum(np.mean(error**2) for error in errors))
        gradients = [2.0 * x.T @ error / len(x) for (x, _), error in zip(parts, errors)]
        weights = weights - multi_worker.RATE * sum(gradients)
    np.testing.assert_allclose(first, [*expected, *weights.ravel()], rtol=1e-4)
    np.testing.assert_array_equal(first, second)


def test_a_group_of_one(server):
    x = tf.constant([1.0, 5.0])
    group = next(KEYS)
    keys = [next(KEYS) for _ in range(3)]
    fetches = [
        tf.raw_ops.CollectiveReduce(
            input=x, group_size=1, group_key=group, instance_key=keys[0], merge_op="Add", final_op="Div", subdiv_offsets=[]
        ),
        tf.raw_ops.CollectiveGather(input=x, group_size=1, group_key=group, instance_key=keys[1], shape=[2]),
        tf.raw_ops.CollectiveAllToAllV2(
            input=x[:1], group_size=1, group_key=group, instance_key=keys[2], ordering_token=[]
        ),
        tf.raw_ops.CollectiveAssignGroupV2(group_assignment=[[0, 1], [2, 3]], device_index=2, base_key=7)[1],
        tf.raw_ops.CollectiveReduceV3(
            input=x, communicator=communicator(next(KEYS)), group_assignment=tf.zeros([0], tf.int32), reduction="Max"
        ),
        tf.raw_ops.CollectiveAllToAllV3(
            input=x[1:], communicator=communicator(next(KEYS)), group_assignment=tf.zeros([0, 0], tf.int32)
        ),
    ]
    got = run(server, fetches)
    np.testing.assert_array_equal(got[0], [1.0, 5.0])
    np.testing.assert_array_equal(got[1], [1.0, 5.0])
    np.testing.assert_array_equal(got[2], [1.0])
    assert got[3] == 8
    np.testing.assert_array_equal(got[4], [1.0, 5.0])
    np.testing.assert_array_equal(got[5], [5.0])


@pytest.mark.parametrize(
    "rank, size, assignment, error, text",
    [
        (0, 0, [], tf.errors.InvalidArgumentError, "group_size must be positive integer but got 0"),
        (5, 1, [], tf.errors.InvalidArgumentError, "rank must be less than group size but got 5 >= 1"),
        (0, 1, [0], tf.errors.UnimplementedError, "Group assignments are not supported yet."),
        (0, 2, [], tf.errors.InvalidArgumentError, "Only part of the group members have user given rank"),
    ],
)
def test_communicators_that_cannot_be(server, rank, size, assignment, error, text):
    assigned = tf.reshape(tf.constant(assignment, tf.int32), [1, len(assignment)])
    total = tf.raw_ops.CollectiveReduceV3(
        input=[1.0], communicator=communicator(next(KEYS), rank, size), group_assignment=assigned, reduction="Add"
    )
    with pytest.raises(error, match=text):
        run(server, total)


def test_communicators_without_ranks(ours):
    group = next(KEYS)

    def build(task):
        total = tf.raw_ops.CollectiveReduceV3(
            input=[task + 1.0],
            communicator=communicator(group, -1, 2),
            group_assignment=tf.zeros([0], tf.int32),
            reduction="Add",
        )
        return total

    for total in run(ours[0], on_all(2, build)):
        np.testing.assert_array_equal(total, [3.0])


def communicator(group, rank=0, size=1):
    return tf.raw_ops.CollectiveInitializeCommunicator(group_key=group, rank=rank, group_size=size)


def reduced(group, key, count=2, size=2):
    return on_all(count, lambda task: collective_ops.all_reduce(tf.ones([size]), 2, group, key, "Add", "Id"))


def test_clients_may_choose_the_leader(ours):
    group, key = next(KEYS), next(KEYS)
    config = v1.ConfigProto(operation_timeout_in_ms=60_000)
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:1"
    for server in ours:
        with v1.Session(server.target, config=config) as session:
            for total in session.run(reduced(group, key)):
                np.testing.assert_array_equal(total, [2.0, 2.0])


def test_a_step_of_one_member_says_who_is_missing(ours):
    group, key = next(KEYS), next(KEYS)
    sums = reduced(group, key)
    with v1.Session(ours[0].target) as session:
        limit = v1.RunOptions(timeout_in_ms=1500)
        with pytest.raises(tf.errors.DeadlineExceededError, match=f"1 of the 2 members of group {group}.*task:0"):
            session.run(sums[0], options=limit)
        for total in session.run(sums):
            np.testing.assert_array_equal(total, [2.0, 2.0])
        with pytest.raises(
            tf.errors.DeadlineExceededError, match=f"task:1/device:CPU:0 in instance {key} of group {group}"
        ):
            session.run(sums[0], options=limit)
        for _ in range(3):
            for total in session.run(sums):
                np.testing.assert_array_equal(total, [2.0, 2.0])


def test_members_that_disagree_do_not_spoil_what_follows(ours):
    group, key = next(KEYS), next(KEYS)
    wrong = on_all(2, lambda task: collective_ops.all_reduce(tf.ones([2 + task]), 2, group, key, "Add", "Id"))
    right = reduced(group, key)
    with v1.Session(ours[0].target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"Shape mismatch in the collective instance {key}"):
            session.run(wrong)
        for total in session.run(right):
            np.testing.assert_array_equal(total, [2.0, 2.0])
        with device(0):
            large = collective_ops.all_reduce(tf.ones([2]), 3, group, next(KEYS), "Add", "Id")
        with pytest.raises(tf.errors.InternalError, match=f"has group_size 3 and group_key {group} but that group has size 2"):
            session.run(large)
        session.run(right)


def test_a_failure_beside_a_collective_operation_ends_it(ours):
    group, key = next(KEYS), next(KEYS)
    fine = v1.placeholder(tf.bool, [])

    def part(task):
        with tf.control_dependencies([v1.Assert(fine, ["no"])] if task == 1 else []):
            x = tf.ones([2])
        return collective_ops.all_reduce(x, 2, group, key, "Add", "Id")

    sums = on_all(2, part)
    with v1.Session(ours[0].target) as session:
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed: \\[no\\]"):
                session.run(sums, {fine: False})
            for total in session.run(sums, {fine: True}):
                np.testing.assert_array_equal(total, [2.0, 2.0])


def test_a_client_learns_of_the_failure_of_the_other_client(ours):
    group, key = next(KEYS), next(KEYS)
    barrier, outcomes = threading.Barrier(2), {}

    def client(task):
        with tf.Graph().as_default(), device(task):
            fine = v1.placeholder(tf.bool, [])
            with tf.control_dependencies([v1.Assert(fine, ["no"])]):
                x = tf.ones([2])
            total = collective_ops.all_reduce(x, 2, group, key, "Add", "Id")
            with v1.Session(ours[task].target) as session:
                outcomes[task] = []
                for bad in [None, 0, None, 1, None]:
                    barrier.wait(60)
                    try:
                        outcomes[task].append(list(session.run(total, {fine: task != bad})))
                    except tf.errors.OpError as error:
                        outcomes[task].append(error.message)

    threads = [threading.Thread(target=client, args=(task,)) for task in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for task in range(2):
        assert [outcome for outcome in outcomes[task][::2]] == [[2.0, 2.0]] * 3
        for outcome in outcomes[task][1::2]:
            assert "assertion failed: [no]" in outcome


def test_a_member_that_restarts_is_taken_in_again():
    group, key = next(KEYS), next(KEYS)
    with tasks(["ours", "ours"]) as servers:
        assert len(run(servers[0], reduced(group, key))) == 2
        servers[1].restart()
        with pytest.raises(tf.errors.FailedPreconditionError, match="incarnation"):
            run(servers[0], reduced(group, key))
        for _ in range(3):
            with contextlib.suppress(tf.errors.FailedPreconditionError):
                run(servers[0], reduced(group, key))
        for total in run(servers[0], reduced(group, key)):
            np.testing.assert_array_equal(total, [2.0, 2.0])


def test_a_member_that_dies_is_named():
    group, key = next(KEYS), next(KEYS)
    with tasks(["ours", "ours"]) as servers:
        sums = reduced(group, key)
        with v1.Session(servers[0].target, config=v1.ConfigProto(operation_timeout_in_ms=60_000)) as session:
            session.run(sums)
            timer = threading.Timer(0.5, servers[1].process.kill)
            timer.start()
            with pytest.raises(tf.errors.UnavailableError, match="/job:worker/replica:0/task:1/device:CPU:0 did not give"):
                session.run(sums[0])
            timer.join()


def test_operations_time_out_by_their_own_limit(ours):
    group = next(KEYS)
    with device(0):
        alone = collective_ops.all_reduce(tf.ones([2]), 2, group, next(KEYS), "Add", "Id", timeout=0.5)
    with pytest.raises(tf.errors.DeadlineExceededError, match="Collective has timed out waiting for other workers"):
        run(ours[0], alone)


def test_ops_without_group_keys_need_none_of_the_leader(ours):
    with ops.Graph().as_default():
        with device(0), pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="group_size"):
            run(ours[0], tf.raw_ops.CollectiveGather(input=[1.0], group_size=0, group_key=1, instance_key=1, shape=[1]))


def call(server, method, message):
    with grpc.insecure_channel(server.address) as channel:
        return channel.unary_unary(f"/tensorflow.WorkerService/{method}")(message, timeout=10)


def test_the_leader_alone_numbers_steps():
    graph_key_five = b"\x0a\x01\x05"
    with tasks(["ours", "ours"]) as servers:
        assert call(servers[0], "GetStepSequence", graph_key_five) == call(servers[0], "GetStepSequence", graph_key_five)
        with pytest.raises(grpc.RpcError) as caught:
            call(servers[1], "GetStepSequence", graph_key_five)
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert caught.value.details() == "GetStepSequenceAsync called at non-group-leader"


def test_calls_for_what_does_not_exist(ours):
    # A group key of 77; and a buffer of a device in another incarnation.
    instance = b"\x28\x4d"
    with pytest.raises(grpc.RpcError) as caught:
        call(ours[0], "CompleteInstance", instance)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details() == "group 77 not found. This normally means the server has restarted"
    name = b"/job:worker/replica:0/task:0/device:CPU:0"
    with pytest.raises(grpc.RpcError) as caught:
        call(ours[0], "RecvBuf", b"\x42" + bytes([len(name)]) + name + b"\x58\x07")
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details().startswith("RecvBuf expects a different device incarnation: 7 vs. ")
