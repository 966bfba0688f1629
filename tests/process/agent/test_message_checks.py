"""Any process of a job can write to the report socket: which messages the agent accepts."""

import json

import pytest

from agent.ranks.message_checks import is_fit
from tests.process.agent.bench import Bench
from tests.support.fake_control_plane import FakeControlPlane

HELLO = {"rank": 1, "local_rank": 0, "world_size": 2, "local_size": 2, "restart": 0, "visible": None, "launcher": 7}
FIT = [
    {"hello": HELLO}, {"hello": {"rank": 77, "local_rank": 0}}, {"hello": {**HELLO, "visible": "0,1", "new": [1]}},
    {"announce": {"rank": None, "local_rank": None, "pid": 5, "visible": None}}, {"dropped": 3}, {"signalled": 15, "at": 1.0},
    {"pid": 5, "at": 1}, {"end": {"exit_code": 0, "signal": None}, "at": 1.5}, {"end": {"exit_code": None, "signal": 9}, "at": 1.5},
    {"nodes": {"nodes": []}}, {"nodes": {"framework": "Ray", "nodes": [{"name": "a-0", "cpu": [0, 2.5], "actors": 3}], "waiting": 2}},
    [1.0, None, {}], [1, 2, {"loss": 0.5}], [1.0, 10**30, {"loss": None}],
]  # fmt: skip
ODD = [
    None, 5, "hello", True, [], {}, {"other": 1}, {"hello": None}, {"hello": {}}, {"hello": {**HELLO, "rank": 0.0}},
    {"hello": {**HELLO, "rank": True}}, {"hello": {**HELLO, "rank": 2**40}}, {"hello": {**HELLO, "local_rank": -1}},
    {"hello": {**HELLO, "restart": "1"}}, {"hello": {**HELLO, "world_size": -1}}, {"hello": {**HELLO, "visible": 3}},
    {"announce": {"rank": 0}}, {"announce": {"rank": 0, "pid": "5"}}, {"announce": {"rank": "0", "pid": 5}}, {"dropped": "many"},
    {"pid": 5}, {"pid": 0, "at": 1.0}, {"pid": 5, "at": "now"}, {"pid": 5, "at": float("nan")}, {"pid": 5, "at": 1e300},
    {"end": {"exit_code": "x", "signal": None}, "at": 1.0}, {"end": {"exit_code": 10**14, "signal": None}, "at": 1.0},
    {"end": {"exit_code": None, "signal": 0}, "at": 1.0}, {"end": {"exit_code": 0}, "at": 1.0}, {"end": 0, "at": 1.0},
    {"signalled": 1, "nodes": 1}, {"pid": 5, "at": 1.0, "nodes": {"nodes": [{"name": "a-0", "cpu": [-1, 1]}]}},
    {"nodes": []}, {"nodes": {}}, {"nodes": {"nodes": [{}]}}, {"nodes": {"nodes": [{"name": 1}]}}, {"nodes": {"nodes": [], "waiting": 0.5}},
    {"nodes": {"nodes": [{"name": "a-0", "cpu": [1]}]}}, {"nodes": {"nodes": [{"name": "a-0", "gpu": [0, -1]}]}},
    {"nodes": {"nodes": [{"name": "a-0", "actors": None}], "framework": 7}}, {"nodes": {"nodes": [{"name": "a-0"}] * 1001}},
    ["now", 1, {}], [float("inf"), 1, {}], [1.0, "1", {}], [1.0, 1, []], [1.0, 1], [True, 1, {}],
]  # fmt: skip


@pytest.mark.parametrize("message", FIT, ids=repr)
def test_a_valid_message_is_accepted(message):
    assert is_fit(message)


@pytest.mark.parametrize("message", ODD, ids=repr)
def test_an_invalid_message_is_ignored(message):
    assert not is_fit(message)


FORGES = """
import json, os, socket, sys
for line in json.load(open("odd.json")):
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect("\\0" + os.environ["MUSTER_REPORT"][1:])
        agent.sendall(line.encode() + b"\\n")
        agent.shutdown(socket.SHUT_WR)
        agent.recv(1)  # the end of it, once all was heard
print("forged", flush=True)
sys.exit(7)
"""


def test_invalid_messages_do_not_lose_the_end_of_a_rank(bench: Bench, control_plane: FakeControlPlane) -> None:
    """Regression: with one of them in a batch, the control plane refused it and the agent dropped its states of ranks."""
    greeted = json.dumps({"hello": {"rank": 0, "local_rank": 0}})
    odd = (
        [json.dumps(one) for one in ODD]
        + [f"{greeted}\n{json.dumps(one)}" for one in ODD if one]
        + ["[" * 100_000, "\0", "{"]
    )
    files = {"forges.py": FORGES, "odd.json": json.dumps(odd)}
    received = bench.run(["python3", "forges.py"], files=files)
    assert "forged" in received.texts()
    assert (bench.status()["state"], bench.status()["exit_code"]) == ("failed", 7)
    told = [
        one[name]
        for one in received.kind("rank")
        for name in ("rank", "local_rank", "restart", "exit_code", "signal", "pid")
        if name in one
    ]
    assert told and all(one is None or type(one) is int for one in told)
    assert "Traceback" not in (bench.attempt / "worker-0/agent.log").read_text()
