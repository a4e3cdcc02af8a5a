"""What the master answers to requests whose arguments are wrong, as bare messages."""

import re

import grpc
import numpy as np
import pytest
from tensorflow.core.protobuf import error_codes_pb2 as codes

from tests.master import MESSAGES, MasterError
from tests.oracle import dtypes
from tests.oracle.build import Builder


def float_proto(*values):
    return dtypes.to_proto(np.array(values, np.float32), "float")


def small_graph():
    """a: placeholder, b = a + a, x: a node without outputs, n: another placeholder, c = n * n."""
    b = Builder()
    a = b.node("Placeholder", name="a", dtype="float", shape=None)
    n = b.node("Placeholder", name="n", dtype="int32", shape=None)
    b.add("Add", a, a, name="b")
    b.add("Mul", n, n, name="c")
    b.add("NoOp", name="x")
    return b.graph


@pytest.fixture
def session(master):
    handle = master.create_session(small_graph())
    yield handle
    try:
        master.close_session(handle)
    except MasterError:
        pass  # a test that closed it itself


A = ("a:0", float_proto(1, 2))
FED = {"feeds": [A]}
CASES = {
    "unknown fetch node": ({"fetches": ["nope:0"]}, codes.NOT_FOUND, r"FetchOutputs node nope:0: not found"),
    "fetch slot too large": ({**FED, "fetches": ["b:3"]}, codes.INVALID_ARGUMENT, r"FetchOutputs b:3: output index too large, must be < 1"),
    "fetch of a node without outputs": ({"fetches": ["x:0"]}, codes.INVALID_ARGUMENT, r"Tried to fetch data for 'x:0', which produces no output"),
    "unknown target": ({"targets": ["nope"]}, codes.NOT_FOUND, r"PruneForTargets: Some target nodes not found: nope "),
    "unknown feed node": ({"feeds": [("zz:0", A[1])], "fetches": ["c:0"]}, codes.NOT_FOUND, r"FeedInputs: unable to find feed output zz:0"),
    "feed slot": ({"feeds": [("a:2", A[1])], "fetches": ["b:0"]}, codes.INVALID_ARGUMENT, r"FeedInputs: a:2 should have output index < 1"),
    "fed twice": ({"feeds": [A, A], "fetches": ["b:0"]}, codes.INVALID_ARGUMENT, r'Endpoint "a:0" fed more than once\.'),
    "fed and fetched": ({**FED, "fetches": ["a:0"]}, codes.INVALID_ARGUMENT, r"a:0 is both fed and fetched\."),
    "nothing asked": ({}, codes.INVALID_ARGUMENT, r"Must specify at least one target to fetch or execute\."),
    "feed of a wrong dtype": (
        {"feeds": [("a:0", dtypes.to_proto(np.array([1], np.int32), "int32"))], "fetches": ["b:0"]},
        codes.INTERNAL,
        r"Output 0 of type int32 does not match declared output type float for node \{\{node _recv_a_0\}\}",
    ),
    "placeholder not fed": ({"fetches": ["c:0"]}, codes.INVALID_ARGUMENT, r"You must feed a value for placeholder tensor 'n' with dtype int32\n\t \[\[\{\{node n\}\}\]\]"),
    "unknown partial run": ({**FED, "fetches": ["b:0"], "partial_run_handle": "7"}, codes.INVALID_ARGUMENT, r"Must run PartialRunSetup before performing partial runs"),
}


@pytest.mark.parametrize("in_body", [True, False], ids=["error in body", "error as status"])
@pytest.mark.parametrize("name", CASES)
def test_wrong_arguments_of_a_step(master, session, name, in_body):
    request, code, text = CASES[name]
    with pytest.raises(MasterError) as caught:
        master.run_step(session, errors_in_body=in_body, **request)
    assert caught.value.code == code
    assert re.search(text, caught.value.text), caught.value.text
    values = master.run_step(session, [A], ["b:0"])
    assert dtypes.from_proto(values["b:0"])[1].tolist() == [2.0, 4.0]


def test_kernel_errors_name_task_and_node(master, session):
    with pytest.raises(MasterError) as caught:
        master.run_step(session, fetches=["c:0"])
    assert caught.value.text.startswith("From /job:worker/replica:0/task:0:\n")


def test_fetching_twice_gives_one_tensor(master, session):
    assert list(master.run_step(session, [A], ["b:0", "b:0"])) == ["b:0"]


def test_targets_only_give_no_tensor(master, session):
    assert master.run_step(session, targets=["x"]) == {}


UNKNOWN = {
    "RunStep": (codes.ABORTED, "Session zz is not found."),
    "ExtendSession": (codes.ABORTED, "Session zz is not found."),
    "CloseSession": (codes.ABORTED, "Session zz is not found. Possibly, this master has restarted."),
    "ListDevices": (codes.INVALID_ARGUMENT, "Session zz is not found. Possibly, this master has restarted."),
}


@pytest.mark.parametrize("method", UNKNOWN)
def test_unknown_session(master, server, method):
    code, text = UNKNOWN[method]
    with pytest.raises(MasterError) as caught:
        master.call(method, session_handle="zz")
    assert (caught.value.code, caught.value.text) == (code, text)


def test_a_closed_session_is_unknown(master, session):
    master.close_session(session)
    with pytest.raises(MasterError, match="is not found") as caught:
        master.run_step(session, [A], ["b:0"])
    assert caught.value.code == codes.ABORTED


def test_one_request_id_counts_once(master, session):
    request = {"feeds": [A], "fetches": ["b:0"], "request_id": 4711}
    master.run_step(session, **request)
    with pytest.raises(MasterError, match=r"The same RunStep \(Master\) request was received twice") as caught:
        master.run_step(session, **request)
    assert caught.value.code == codes.ABORTED
    for _ in range(2):
        master.run_step(session, **{**request, "request_id": 0})


def extend(master, session, graph, version=0):
    request = MESSAGES["ExtendSessionRequest"](session_handle=session, current_graph_version=version)
    request.graph_def.ParseFromString(graph.SerializeToString())
    return master.call("ExtendSession", request)


def addition(name="d", op="Neg", source="a"):
    b = Builder()
    node = b.graph.node.add(name=name, op=op, input=[source])
    node.attr["T"].type = dtypes.enum("float")
    return b.graph


def test_extension_adds_nodes_and_counts_versions(master, session):
    assert extend(master, session, addition()).new_graph_version == 1
    value = master.run_step(session, [A], ["d:0"])["d:0"]
    assert dtypes.from_proto(value)[1].tolist() == [-1.0, -2.0]
    assert extend(master, session, addition("e"), 1).new_graph_version == 2


EXTENSIONS = {
    "wrong version": (addition(), 3, codes.ABORTED, r"Current version is 0 but caller expected 3\."),
    "known node": (addition("b"), 0, codes.INVALID_ARGUMENT, r"GraphDef argument to Extend includes node 'b', which was created by a previous call to Create or Extend in this session\."),
    "unknown op": (addition(op="NoSuchOp"), 0, codes.NOT_FOUND, r"Op type not registered 'NoSuchOp'"),
    "unknown input": (addition(source="nope"), 0, codes.INVALID_ARGUMENT, r"Node 'd': Unknown input node 'nope'"),
    "illegal name": (addition("_d"), 0, codes.INVALID_ARGUMENT, r"Illegal op name '_d'"),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_a_refused_extension_leaves_the_session_as_it_was(master, session, name):
    graph, version, code, text = EXTENSIONS[name]
    for _ in range(2):
        with pytest.raises(MasterError) as caught:
            extend(master, session, graph, version)
        assert caught.value.code == code
        assert re.search(text, caught.value.text), caught.value.text
    assert extend(master, session, addition("fine")).new_graph_version == 1


def test_a_device_that_is_not_there_is_refused_at_once(master, server):
    b = Builder()
    b.add("NoOp", name="far", device="/job:elsewhere/task:3")
    with pytest.raises(MasterError) as caught:
        master.create_session(b.graph)
    assert caught.value.code == codes.INVALID_ARGUMENT
    assert "Cannot assign a device for operation far" in caught.value.text
    assert "/job:elsewhere/task:3" in caught.value.text


def test_a_dtype_without_kernel_is_refused_and_names_the_op(master, server):
    b = Builder()
    b.add("MatMul", b.const([[1]], "uint8"), b.const([[1]], "uint8"), name="strange")
    with pytest.raises(MasterError, match="No OpKernel was registered to support Op 'MatMul'") as caught:
        handle = master.create_session(b.graph)  # where TensorFlow says it; a server may wait until a step needs it
        master.run_step(handle, fetches=["strange:0"])
    assert caught.value.code == codes.INVALID_ARGUMENT


@pytest.mark.ours_only
def test_a_method_that_does_not_exist_is_unimplemented(master, server):
    stub = master.channel.unary_unary("/tensorflow.grpc.MasterService/Reset")
    with pytest.raises(grpc.RpcError) as caught:
        stub(b"", timeout=10)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_garbage_instead_of_a_message(master, server):
    with pytest.raises(MasterError):
        master.call("RunStep", b"\xff\xff\xff\xff")
    with pytest.raises(MasterError):
        master.call("CreateSession", b"\x0a\xff\xff\xff\xff\x0f")
