"""Policies and the profile while a graph is being captured."""

import logging
import subprocess
import sys

import infini_rearrange as ir
import platform_facts as facts
import pytest
import strided
import torch
from capture_cases import COPY, DEVICE, SITE, Attention, Step, calls, capture, replayed

PLATFORM_COPIES = facts.FUSED_ATTENTION == facts.COPIES
AUTO = {"auto_dispatch_capture": True}
EVENTS = (
    "aclrtCreateEvent",
    "aclrtCreateEventWithFlag",
    "aclrtCreateEventExWithFlag",
    "aclrtRecordEvent",
    "aclrtQueryEventStatus",
    "aclrtQueryEventWaitStatus",
    "aclrtQueryEvent",
    "aclrtSynchronizeEvent",
    "aclrtEventElapsedTime",
)


@pytest.mark.every_platform
@pytest.mark.parametrize("options", [{}, AUTO], ids=["plain", "auto"])
def test_strict_refuses_and_the_capture_can_be_tried_again(options, hooked, site):
    step = Step.of("mla_tnd", "key")
    with pytest.raises(ir.NonContiguousError, match=f"{SITE}.key is not contiguous"), ir.policy("strict"):
        capture(step.call, **options)
    assert site(f"{SITE}.key")["refused"] == 1
    assert site(f"{SITE}.key")["captured"] == 0
    graph, result = capture(step.call, **options)
    if options:
        graph.update(cpu_update_input=[step.lengths[0]])
    replayed(graph)
    assert torch.equal(result.cpu(), step.expected(0))


def test_strict_in_a_group_made_by_hand(hooked):
    step = Step.of("mla_tnd", "key", "v1.out")
    with pytest.raises(ir.NonContiguousError), ir.policy("strict"):
        Attention.prepare(step).capture()
    Attention.prepare(step).capture().check(1)


@pytest.mark.skipif(PLATFORM_COPIES, reason="the operator copies by itself here")
def test_warn_says_once_what_every_replay_costs(hooked, caplog):
    step = Step.of("mla_tnd", "key")
    with caplog.at_level(logging.WARNING, "infini_rearrange"), ir.policy("warn"):
        graph, _ = capture(step.call, **AUTO)
        for turn in (0, 1, 0):
            graph.update(cpu_update_input=[step.lengths[turn]])
            replayed(graph)
    said = [record.getMessage() for record in caplog.records if f"{SITE}.key " in record.getMessage()]
    assert len(said) == 1
    assert "captured into a graph: copies" in said[0]
    assert "at every replay" in said[0]
    assert "attention_cases.py" in said[0]  # the line that made the call, not torch_npu's


@pytest.mark.skipif(PLATFORM_COPIES, reason="the operator copies by itself here")
def test_off_captures_what_the_operator_then_refuses(hooked, site):
    step = Step.of("mla_tnd", "key")
    with ir.policy("off"):
        if facts.FUSED_ATTENTION == facts.REFUSES:
            with pytest.raises(RuntimeError, match="must be contiguous"):
                capture(step.call)
        else:
            capture(step.call)
    assert site(f"{SITE}.key")["passed"] >= 1
    assert site(f"{SITE}.key")["captured"] == 0


def test_a_named_site_counts_the_replays(site):
    step = Step.of("mla_tnd", "none")
    x = strided.wider_rows(step.tensors["key"])
    graph, copy = capture(lambda: torch.ops.infini.contiguous(x, "decode.key"))
    for _ in range(3):
        replayed(graph)
    assert torch.equal(copy.cpu(), x.cpu())
    figures = site("decode.key")
    assert (figures["calls"], figures["copied"], figures["captured"], figures["replayed"]) == (1, 0, 1, 3)
    assert figures["bytes_replayed"] == 3 * x.nbytes


TIMED = """
import ctypes, json, os
import torch, torch_npu
import infini_rearrange as ir

library = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
library.cann_sim_calls.restype = ctypes.c_uint64
calls = lambda: sum(library.cann_sim_calls(name.encode()) for name in EVENTS)
x = torch.randn(64, 96, device="npu:0")[:, :32]
for _ in range(8):
    torch.ops.infini.rearrange(x, site="eager")
torch.npu.synchronize()
pending = calls()
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    before = calls()
    for _ in range(8):
        y = torch.ops.infini.rearrange(x, site="captured")
    ir.profile()
    inside = calls() - before
graph.replay()
torch.npu.synchronize()
sites = {site["site"]: site for site in ir.profile()["sites"]}
print(json.dumps({"inside": inside, "eager": sites.get("eager"), "captured": sites.get("captured"),
                  "right": torch.equal(y.cpu(), x.cpu())}))
"""


@pytest.mark.parametrize(("mode", "timed"), [("time", 8), ("time:1/4", 2), ("count", 0), ("off", None)])
def test_device_time_is_never_measured_while_capturing(mode, timed, fresh):
    got = fresh(f"EVENTS = {EVENTS!r}\n{TIMED}", INFINI_PROFILE=mode)
    assert got["right"]
    assert got["inside"] == 0
    if timed is None:
        assert got["eager"] is got["captured"] is None
        return
    eager, captured = got["eager"], got["captured"]
    assert (eager["copied"], eager["timed"]) == (8, timed)
    assert eager["bytes_timed"] == timed * 64 * 32 * 4
    # The simulated clock: every task takes some microseconds.
    assert eager["ns_timed"] >= timed * 1000
    assert (captured["captured"], captured["replayed"], captured["timed"], captured["ns_timed"]) == (8, 8, 0, 0)


def test_figures_of_several_graphs(hooked, site):
    step = Step.of("mla_tnd", "own")
    copied = step.copied(PLATFORM_COPIES)
    graphs = [capture(step.call)[0] for _ in range(3)]
    for graph, replays in zip(graphs, (1, 2, 4), strict=True):
        for _ in range(replays):
            replayed(graph)
    figures = ir.profile()["graphs"]
    assert (figures["captured"], figures["replays"]) == (3, 7)
    for name in copied:
        one = site(f"{SITE}.{name}")
        assert (one["captured"], one["replayed"], one["copied"]) == (3, 7, 0)
        assert one["bytes_replayed"] == 7 * step.tensors[name].nbytes
    ir.reset_profile()
    replayed(graphs[0])
    assert ir.profile()["graphs"]["replays"] == 1
    for name in copied:
        assert site(f"{SITE}.{name}")["replayed"] == 1, "what a graph copies is known after a reset too"


def test_report_shows_replays(tmp_path):
    x = torch.randn(64, 96, device=DEVICE)[:, :32]
    graph, _ = capture(lambda: torch.ops.infini.rearrange(x, site="decode.x"))
    for _ in range(5):
        replayed(graph)
    ir.save_profile(tmp_path / "profile.json")
    command = [sys.executable, "-m", "infini_rearrange_cli.main", "report", str(tmp_path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = text.splitlines()
    heading = next(line for line in lines if line.startswith("site "))
    row = next(line for line in lines if line.startswith("decode.x "))
    assert "bytes replayed" in heading
    assert "41.0 kB" in row, text
    assert "5 replays" in text


def test_copies_outside_the_capture_are_eager_copies(hooked):
    x = torch.randn(64, 96, device=DEVICE)[:, :32]
    graph, _ = capture(lambda: torch.ops.infini.rearrange(x, site="inside"))
    before = calls(COPY)
    torch.ops.infini.rearrange(x, site="outside")
    torch.npu.synchronize()
    assert calls(COPY) == before + 1
    sites = {one["site"]: one for one in ir.profile()["sites"]}
    assert (sites["outside"]["copied"], sites["outside"]["captured"]) == (1, 0)
    assert sites["inside"]["copied"] == 0
    del graph
