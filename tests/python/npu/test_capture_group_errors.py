"""What a task group cannot take: refused with what to do, before anything is launched, and the graph stays usable."""

import re

import infini_rearrange as ir
import platform_facts as facts
import pytest
import strided
import torch
from capture_cases import (
    COPY,
    DEVICE,
    SITE,
    Attention,
    Groups,
    Step,
    capture,
    capturing,
    refill,
    replayed,
    tasks,
    weak,
)

pytestmark = pytest.mark.skipif(facts.FUSED_ATTENTION == facts.COPIES, reason="the operator copies by itself")

REMEDY = "before graph_task_group_begin"


def longer(tensor):
    """The same layout with more rows."""
    return strided.wider_rows(torch.cat([tensor, tensor[:4]]))


# What stands in the place of the captured argument, and what the message says of it.
CHANGED = {
    "another layout": ("key", strided.every_other, r"key was captured as .*\[352, 176, 1\].*is now .*\[512, 256, 2\]"),
    "contiguous now": ("key", torch.Tensor.contiguous, r"key was captured as .* and is now .*\[256, 128, 1\]"),
    "another shape": ("key", longer, r"key was captured as .*\[24, 2, 128\].* and is now .*\[28, 2, 128\]"),
    "another dtype": ("key", lambda t: strided.wider_rows(t.half()), r"key was captured as BFloat16 .* is now Half"),
    "missing": ("key_rope", lambda _: None, r"key_rope was captured as .* and is now missing"),
    "contiguous when captured": ("value", strided.wider_rows, r"value is \[24, 2, 128\].*needs a copy that was not"),
    "out strided now": ("out", lambda out: [strided.wider_rows(out[0]), out[1]], r"out\[0\] is .*needs a copy"),
}


def launches(sim):
    return sim.launches(*sim.FIA, COPY)


@pytest.mark.parametrize("policy", ["auto", "warn"])
@pytest.mark.parametrize("change", CHANGED)
def test_an_update_that_is_not_what_was_captured(change, policy, hooked, sim):
    argument, make, says = CHANGED[change]
    step = Step.of("mla_tnd", "key", "v1.out")
    step.tensors["key_rope"] = strided.wider_rows(step.tensors["key_rope"])
    one = Attention.prepare(step).capture()
    changed = make({**step.tensors, "out": one.into}[argument])
    before = launches(sim)
    with ir.policy(policy), pytest.raises(RuntimeError, match=says) as raised:
        one.update(1, **{argument: changed})
    assert launches(sim) == before
    assert not isinstance(raised.value, ir.NonContiguousError)
    assert SITE in str(raised.value)
    assert REMEDY in str(raised.value)
    # The group is as it was, and a right update works.
    one.check(0)
    one.check(1)


def test_key_and_value_are_no_longer_one_tensor(hooked, sim):
    """They had one buffer, which cannot hold two."""
    step = Step.of("bsh", "key", "v1.out")
    step.tensors["value"] = step.tensors["key"]
    one = Attention.prepare(step).capture()
    other = strided.wider_rows(step.tensors["key"] + 1)
    before = launches(sim)
    with pytest.raises(RuntimeError, match="captured as the same tensor") as raised:
        one.update(1, value=weak(other))
    assert launches(sim) == before
    assert REMEDY in str(raised.value)
    one.check(1)


def test_more_calls_than_were_captured(hooked, sim):
    step = Step.of("mla_tnd", "all", "v1.out")
    one = Attention.prepare(step).capture()
    with pytest.raises(RuntimeError, match="needs a copy that was not captured") as raised, one.groups.update():
        one.packet.out(**one.arguments, **one.options(1))
        torch.npu.synchronize()
        before = launches(sim)
        one.packet.out(**one.arguments, **one.options(1))
    assert launches(sim) == before
    assert REMEDY in str(raised.value)
    one.check(1)


def test_a_group_that_is_not_known(hooked, sim):
    """Its calls had no copies to be found again: captured before the package was told of groups."""
    step = Step.of("mla_tnd", "own", "v1.out")
    one = Attention.prepare(step).capture()
    from infini_rearrange import _graphs

    number = _graphs._graphs._groups.pop(one.groups.handles[0])
    before = launches(sim)
    with pytest.raises(RuntimeError, match="needs a copy that was not captured"):
        one.update(1)
    assert launches(sim) == before
    _graphs._graphs._groups[one.groups.handles[0]] = number
    one.check(1)


EXPLICIT = {
    "rearrange": lambda view: ir.rearrange(view, site="model.key"),
    "rearrange without a site": ir.rearrange,
    "contiguous": lambda view: ir.contiguous(view, "model.key"),
}


@pytest.mark.parametrize("copy", EXPLICIT.values(), ids=EXPLICIT)
def test_an_explicit_copy_inside_a_group(copy, hooked, sim, site):
    view, groups = torch.arange(12.0, device=DEVICE).view(3, 4).t(), Groups()
    torch.npu.synchronize()
    before = launches(sim)
    with pytest.raises(RuntimeError, match=re.escape("[4, 3] strides [1, 4]")) as raised, torch.npu.graph(groups.graph):
        # No context manager: the error must not be hidden by what torch_npu says of an empty group.
        torch.npu.graph_task_group_begin(torch.npu.current_stream())
        try:
            copy(view)
        finally:
            torch.npu.graph_task_group_end(torch.npu.current_stream())
    assert launches(sim) == before
    assert REMEDY in str(raised.value)
    assert "keep the result as long as the graph" in str(raised.value)
    assert site("model.key")["copied"] == 0
    assert capturing() == 0
    # Outside a group it is as ever, eager and captured.
    assert torch.equal(copy(view).cpu(), view.cpu())
    graph, moved = capture(lambda: copy(view))
    replayed(graph)
    assert torch.equal(moved.cpu(), view.cpu())


def test_an_explicit_copy_inside_an_update(hooked, sim):
    step = Step.of("mla_tnd", "own", "v1.out")
    one = Attention.prepare(step).capture()
    before = launches(sim)
    with pytest.raises(RuntimeError, match=REMEDY), one.groups.update():
        ir.contiguous(step.tensors["key"], "model.key")
    assert launches(sim) == before
    one.check(1)


def test_what_needs_no_copy_is_no_error_inside_a_group(hooked):
    """Contiguous tensors, no elements, tensors on the host, and a policy that copies nothing."""
    x, empty = torch.ones(4, 4, device=DEVICE), torch.ones(0, 4, device=DEVICE).t()
    host = torch.arange(12.0).view(3, 4).t()
    step = Step.of("mla_tnd", "own", "v1.out")
    one = Attention.prepare(step)
    workspace = step.operator.max_workspace(step.tensors, step.scenario.options)
    with torch.npu.graph(one.groups.graph), one.groups.group():
        assert ir.contiguous(x, "model.x") is x
        assert ir.rearrange(empty).shape == empty.shape
        assert torch.equal(ir.rearrange(host), host)
        with ir.policy("off"):
            assert ir.contiguous(x.t(), "model.x").stride() == (1, 4)
        one.packet.out(**step.tensors, **one.options(0), workspace=workspace, out=one.into)
    one.arguments = {**weak(step.tensors), "workspace": weak(workspace), "out": weak(one.into)}
    one.check(1)


def test_the_remedy_helps(hooked, site):
    """contiguous() before the group, its result kept and handed to the operator when capturing and when updating."""
    step = Step.of("mla_tnd", "own", "v1.out")
    given = dict(step.tensors)
    one = Attention.prepare(step)
    with torch.npu.graph(one.groups.graph):
        step.tensors = given | {name: ir.contiguous(given[name], f"model.{name}") for name in step.names}
        one.issue()
    kept = dict(step.tensors)
    assert [kind for kind, _ in tasks(one.groups.graph)] == ["task"] * 3 + ["group"]
    step.tensors = given
    for number, turn in enumerate((1, 0)):
        refill(given, number)
        one.check(turn)
    assert site("model.key")["replayed"] == 2
    assert all(tensor.is_contiguous() for tensor in kept.values())


def test_rearrange_into_a_tensor_of_the_callers_inside_a_group(hooked):
    """The destination is the caller's own to keep, so an update finds it again."""
    source, out, groups = torch.arange(12.0, device=DEVICE).view(3, 4), torch.zeros(4, 3, device=DEVICE), Groups()
    with torch.npu.graph(groups.graph), groups.group():
        ir.rearrange(source.t(), out=out)
    for factor in (2, 3):
        source.copy_(torch.arange(12.0).view(3, 4) * factor)
        with groups.update():
            ir.rearrange(weak(source).t(), out=weak(out))
        groups.replay()
        assert torch.equal(out.cpu(), source.cpu().t())


def test_the_group_of_a_graph_that_was_reset(hooked, sim):
    """torch_npu's own error arrives; nothing of the update stays behind."""
    step = Step.of("mla_tnd", "all", "v1.out")
    one = Attention.prepare(step).capture()
    one.check(1)
    one.groups.graph.reset()
    before = launches(sim)
    with pytest.raises(RuntimeError, match="graph_task_update_begin"):
        one.update(0)
    assert launches(sim) == before
    with torch.npu.stream(one.groups.stream):
        assert torch.equal(ir.rearrange(step.tensors["key"]).cpu(), step.tensors["key"].cpu())
    again = Attention.prepare(step).capture()
    again.check(0)


def test_a_refused_call_in_a_group(hooked, sim):
    """Strict: nothing is launched, and a capture with a new graph works."""
    step = Step.of("mla_tnd", "own", "v1.out")
    one = Attention.prepare(step)
    workspace = step.operator.max_workspace(step.tensors, step.scenario.options)
    before = launches(sim)
    with (
        pytest.raises(ir.NonContiguousError, match=rf"{SITE}\.key "),
        ir.policy("strict"),
        torch.npu.graph(one.groups.graph),
    ):
        stream = torch.npu.current_stream()
        torch.npu.graph_task_group_begin(stream)
        try:
            one.packet.out(**step.tensors, **one.options(0), workspace=workspace, out=one.into)
        finally:
            torch.npu.graph_task_group_end(stream)
    assert launches(sim) == before
    assert capturing() == 0
    again = Attention.prepare(step).capture()
    again.check(1)


def test_strict_at_the_update_only(hooked):
    """What was captured with a copy goes on with it: the copy is made at replays anyway."""
    step = Step.of("mla_tnd", "own", "v1.out")
    one = Attention.prepare(step).capture()
    with ir.policy("strict"):
        one.update(1)
    one.groups.replay()
    assert torch.equal(one.into[0].cpu(), step.expected(1))
