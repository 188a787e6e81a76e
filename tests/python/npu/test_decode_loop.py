"""A server decodes for 500 steps, in each way that servers have: every step as by hand, and no memory lost.

The steps run in processes of their own (`decode_server.py`), one with torch_npu's task queue and one without, both at
the same time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import decode_model as model
import platform_facts as facts
import pytest
from decode_server import SIZES, WAYS

# The whole run where fused attention refuses strided inputs; where a release differs in that, enough to meet it all.
STEPS = 500 if facts.FUSED_ATTENTION == facts.REFUSES else 60
QUEUES = ("0", "1")  # TASK_QUEUE_ENABLE
NAMES = ["eager", "eager_streams", "dispatch", "dispatch_streams", "groups", "groups_streams"]
GRAPHS = [name for name in NAMES if WAYS[name].groups]
BYTES = 2  # of an element

pytestmark = [pytest.mark.every_platform, pytest.mark.timeout(900)]


def start(steps, names, **environment):
    command = [sys.executable, str(Path(__file__).with_name("decode_server.py")), str(steps), *names]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=os.environ | environment, stdout=pipe, stderr=pipe, text=True)


def end(process):
    """Outcomes by way."""
    output, errors = process.communicate(timeout=800)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert lines, f"ended with {process.returncode}\n{output}{errors}"
    return json.loads(lines[-1])


@pytest.fixture(scope="module")
def outcomes():
    """Outcomes by task queue and way."""
    running = {queue: start(STEPS, NAMES, TASK_QUEUE_ENABLE=queue) for queue in QUEUES}
    return {queue: end(process) for queue, process in running.items()}


@pytest.fixture(params=QUEUES)
def by_way(request, outcomes):
    return outcomes[request.param]


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_as_an_eager_contiguous_one(by_way, name):
    outcome = by_way[name]
    assert outcome["error"] == ""
    assert outcome["mismatched"] == []
    assert outcome["overwritten"] == 0
    assert sum(outcome["decodes"].values()) == STEPS
    assert outcome["prefills"] > STEPS // 10


@pytest.mark.parametrize("name", NAMES)
def test_memory_does_not_grow(by_way, name):
    outcome = by_way[name]
    captured, end = outcome["pool"]
    assert captured == end
    assert (captured[1] > 0) == (name in GRAPHS)
    settled, end = outcome["device"]
    assert settled == end
    assert outcome["left"] == 0


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_counted_while_they_live(by_way, name):
    outcome = by_way[name]
    before, during, after = outcome["live"]
    assert (during - before, after - before) == (len(SIZES), 0)
    calls = len(model.VERSIONS)
    expected = {"captured": len(SIZES), "replays": STEPS, "updates": STEPS * calls}
    assert {name: outcome["graphs"][name] for name in expected} == expected
    assert set(outcome["decodes"]) == {str(size) for size in SIZES}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_profile_has_the_copies_that_replays_make(by_way, name):
    outcome = by_way[name]
    # Elements of one sequence that each layer has to copy: rows of its caches, all positions of them.
    latent, expanded = model.LATENT, model.HEADS * model.LATENT
    copies = {
        "npu_fused_infer_attention_score.key": [latent],  # the value is the same view
        "npu_fused_infer_attention_score.key_rope": [model.ROPE],
        "npu_fused_infer_attention_score_v2.key": [model.WIDTH, expanded],
        "npu_fused_infer_attention_score_v2.value": [model.WIDTH, expanded],
        "npu_fused_infer_attention_score_v2.key_rope": [model.HEADS * model.ROPE],
    }
    sequences = sum(int(size) * steps for size, steps in outcome["decodes"].items())
    if facts.FUSED_ATTENTION == facts.COPIES:
        copies = {}
    expected = {
        site: [len(SIZES) * len(rows), STEPS * len(rows), sequences * model.POSITIONS * sum(rows) * BYTES]
        for site, rows in copies.items()
    }
    sites = outcome["sites"].items()
    figures = {site: [one["captured"], one["replayed"], one["bytes_replayed"]] for site, one in sites}
    assert {site: one for site, one in figures.items() if any(one)} == expected


@pytest.mark.parametrize("name", NAMES)
def test_what_the_operators_copy_by_themselves_is_known(by_way, name):
    outcome = by_way[name]
    count, moved = outcome["hidden"]
    assert count > 0 and moved > 0  # the query of every layer
    known = [site for site, one in outcome["sites"].items() if one["hidden"]]
    inputs = {"query", "query_rope"}
    if facts.FUSED_ATTENTION == facts.COPIES:
        inputs |= {"key", "value", "key_rope"}
    assert {site.rsplit(".", 1)[1] for site in known} == inputs


@pytest.mark.parametrize("ours, by_hand", [("groups", "by_hand"), ("groups_trimmed", "by_hand_trimmed")])
def test_copies_made_by_hand_inside_the_group_are_caught(ours, by_hand):
    # The public failure, and what shows that the tests above can fail: replays use memory that is somebody else's, or
    # nobody's, which stops the device and so comes last.
    outcomes = end(start(12, [ours, by_hand]))
    assert (outcomes[ours]["error"], outcomes[ours]["mismatched"], outcomes[ours]["overwritten"]) == ("", [], 0)
    if by_hand == "by_hand":
        assert outcomes[by_hand]["mismatched"] and outcomes[by_hand]["overwritten"]
    else:
        assert "stream synchronize failed" in outcomes[by_hand]["error"]
