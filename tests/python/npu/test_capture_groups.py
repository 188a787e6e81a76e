"""Task groups made by hand, as vLLM-Ascend makes them: copies go to buffers that updates find again."""

import threading

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
    litter,
    refill,
    tasks,
    weak,
)

PLATFORM_COPIES = facts.FUSED_ATTENTION == facts.COPIES
ARGUMENTS = {
    "mla_tnd": ("query", "key", "value", "query_rope", "key_rope", "atten_mask", "all", "none"),
    "bsh": ("key", "all"),
    "paged": ("query", "block_table", "all"),
}
EVERYWHERE = {("mla_tnd", "all", "v1.out"), ("paged", "all", "v2.out")}
CALLS = [
    pytest.param(*call, marks=[pytest.mark.every_platform] if call in EVERYWHERE else [])
    for scenario, arguments in ARGUMENTS.items()
    for argument in arguments
    for call in [(scenario, argument, operator) for operator in ("v1.out", "v2.out")]
]


@pytest.mark.parametrize(("scenario", "argument", "operator"), CALLS)
def test_updates_and_replays_give_what_eager_calls_give(scenario, argument, operator, hooked, site):
    step = Step.of(scenario, argument, operator)
    one = Attention.prepare(step).capture()
    copied = step.copied(PLATFORM_COPIES)
    assert [kind for kind, _ in tasks(one.groups.graph)] == ["group"] * (len(copied) + 1)
    turns = (0, 1, 1, 0)
    for number, turn in enumerate(turns):
        refill(step.tensors, number)
        one.check(turn)
    refill(step.tensors, 9)
    assert not torch.equal(step.expected(0), step.expected(1))
    for name in step.tensors:
        figures = site(f"{step.operator.site}.{name}")
        replays = len(turns) if name in copied else 0
        assert figures["copied"] == 0
        assert (figures["captured"], figures["replayed"]) == (int(name in copied), replays)
        assert figures["bytes_replayed"] == replays * step.tensors[name].nbytes
        assert figures["hidden"] == (len(turns) if name in step.names and name not in copied else 0)
    graphs = ir.profile()["graphs"]
    assert (graphs["captured"], graphs["replays"], graphs["updates"]) == (1, 4, 4)


@pytest.mark.parametrize("operator", ["v1.out", "v2.out"])
def test_strided_results(operator, hooked, site):
    """The second element of a tensor list stays as it is, the first is copied in and back, into the caller's own."""
    step = Step.of("mla_tnd", "all", operator)
    into = step.strided_results()
    one = Attention.prepare(step, into).capture()
    copied = len(step.copied(PLATFORM_COPIES))
    names = [name for _, name in tasks(one.groups.graph)]
    assert names[: copied + 1] == [COPY] * (copied + 1)
    assert names[copied + 2 :] == [COPY]
    assert (into[0].cpu() == 77).all()
    for number, turn in enumerate((1, 0, 1)):
        refill(step.tensors, number)
        one.check(turn)
    assert site(f"{step.operator.site}.out")["captured"] == 2
    assert site(f"{step.operator.site}.out")["replayed"] == 6


def test_buffers_outlive_what_is_freed_in_between(hooked):
    """The cache is emptied and freed memory is written over, before and after every update."""
    step = Step.of("mla_tnd", "all", "v1.out")
    one = Attention.prepare(step, step.strided_results()).capture()
    for number, turn in enumerate((0, 1, 0)):
        litter()
        refill(step.tensors, number)
        one.update(turn)
        litter()
        one.groups.replay()
        assert torch.equal(one.into[0].cpu(), step.expected(turn))


def test_replays_without_updates_in_between(hooked):
    """A group whose event is given without an update replays what was there last."""
    step = Step.of("bsh", "all", "v1.out")
    one = Attention.prepare(step).capture()
    one.check(1)
    for number in range(3):
        refill(step.tensors, number)
        one.groups.events[0].record(one.groups.stream)
        one.groups.replay()
        assert torch.equal(one.into[0].cpu(), step.expected(1))


def test_the_replay_before_the_update(hooked):
    step = Step.of("mla_tnd", "all", "v2.out")
    one = Attention.prepare(step).capture()
    for turn in (1, 0, 1):
        one.groups.graph.replay()
        one.update(turn)
        torch.npu.synchronize()
        assert torch.equal(one.into[0].cpu(), step.expected(turn))


def test_one_view_for_key_and_value_has_one_buffer(hooked):
    """Weak references to one tensor have storages of their own; its address tells that it is one."""
    step = Step.of("bsh", "key", "v1.out")
    step.tensors["value"] = step.tensors["key"]
    one = Attention.prepare(step).capture()
    assert len(tasks(one.groups.graph)) == (1 if PLATFORM_COPIES else 2)
    for number, turn in enumerate((0, 1)):
        refill(step.tensors, number)
        one.check(turn)


def test_two_groups_of_one_operator(hooked):
    groups = Groups()
    layers = [Attention.prepare(Step.of("mla_tnd", "all", "v1.out"), groups=groups) for _ in range(3)]
    refill(layers[1].step.tensors, 5)
    refill(layers[2].step.tensors, 6)
    with torch.npu.graph(groups.graph):
        for layer in layers:
            layer.issue()
    for turns in ((0, 1, 0), (1, 0, 0), (1, 1, 1)):
        for layer, turn in reversed(list(zip(layers, turns, strict=True))):
            layer.update(turn)
        groups.replay()
        for layer, turn in zip(layers, turns, strict=True):
            assert torch.equal(layer.into[0].cpu(), layer.step.expected(turn))


@pytest.mark.parametrize("same", [True, False], ids=["one operator twice", "two operators"])
def test_two_calls_in_one_group(same, hooked):
    """Calls of a group are found again by operator and order; each has buffers of its own."""
    groups = Groups()
    calls = [
        Attention.prepare(Step.of("mla_tnd", "all", operator), groups=groups)
        for operator in ("v1.out", "v1.out" if same else "v2.out")
    ]
    refill(calls[1].step.tensors, 5)
    workspaces = [call.step.operator.max_workspace(call.step.tensors, call.step.scenario.options) for call in calls]
    with torch.npu.graph(groups.graph), groups.group():
        for call, workspace in zip(calls, workspaces, strict=True):
            call.packet.out(**call.step.tensors, **call.options(0), workspace=workspace, out=call.into)
    for turns in ((0, 1), (1, 0)):
        with groups.update():
            for call, workspace, turn in zip(calls, workspaces, turns, strict=True):
                tensors = weak(call.step.tensors)
                call.packet.out(**tensors, **call.options(turn), workspace=workspace, out=weak(call.into))
        groups.replay()
        for call, turn in zip(calls, turns, strict=True):
            assert torch.equal(call.into[0].cpu(), call.step.expected(turn))


def test_two_graphs_with_a_group_each(hooked):
    """One for each batch size, as servers have them, captured one after the other and updated in turn."""
    captured = [Attention.prepare(Step.of("mla_tnd", "all", "v1.out")).capture() for _ in range(3)]
    for number, turn in enumerate((1, 0, 1, 0)):
        one = captured[number % 3]
        refill(one.step.tensors, number)
        one.check(turn)


def test_updates_from_another_thread(hooked):
    step = Step.of("mla_tnd", "all", "v1.out")
    one = Attention.prepare(step, step.strided_results()).capture()
    for number, turn in enumerate((1, 0)):
        refill(step.tensors, number)
        raised = []

        def update(turn=turn, raised=raised):
            try:
                torch.npu.set_device(0)
                one.update(turn)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=update)
        thread.start()
        thread.join()
        assert raised == []
        one.groups.replay()
        assert torch.equal(one.into[0].cpu(), step.expected(turn))


def test_a_call_on_another_stream_while_an_update_is_open(hooked, site):
    """It is no part of the update: an eager call with copies of its own."""
    step, other = Step.of("mla_tnd", "all", "v1.out"), Step.of("mla_tnd", "all", "v2")
    one = Attention.prepare(step).capture()
    expected, side = other.expected(1), torch.npu.Stream()
    with one.groups.update():
        with torch.npu.stream(side):
            result = other.call(1)
            moved = ir.rearrange(other.tensors["key"])
        one.packet.out(**one.arguments, **one.options(1))
    side.synchronize()
    assert torch.equal(result.cpu(), expected)
    assert torch.equal(moved.cpu(), other.tensors["key"].cpu())
    assert site(f"{SITE}_v2.key")["hidden" if PLATFORM_COPIES else "copied"] == 1
    one.groups.replay()
    assert torch.equal(one.into[0].cpu(), step.expected(1))


def test_in_inference_mode(hooked):
    with torch.inference_mode():
        step = Step.of("mla_tnd", "all", "v1.out")
        one = Attention.prepare(step, step.strided_results()).capture()
        for turn in (1, 0):
            one.check(turn)


def test_a_wrapped_call_in_a_group(site):
    """Without install(): the wrapped call, at capture and at updates."""
    step = Step.of("mla_tnd", "own", "v1.out")
    wrapped = ir.wrap(torch.ops.npu.npu_fused_infer_attention_score.out, site="model.attention")
    groups = Groups()
    query = step.tensors["query"].contiguous()
    into = [torch.empty_like(query), torch.empty(1, dtype=query.dtype, device=DEVICE)]
    dense = {name: tensor.contiguous() for name, tensor in step.tensors.items()}
    workspace = step.operator.max_workspace(dense, step.scenario.options)
    with torch.npu.graph(groups.graph), groups.group():
        wrapped(**step.tensors, **step.scenario.options, workspace=workspace, out=into)
    for turn in (1, 0):
        with groups.update():
            wrapped(
                **weak(step.tensors),
                **(step.scenario.options | step.lengths[turn]),
                workspace=weak(workspace),
                out=weak(into),
            )
        groups.replay()
        assert torch.equal(into[0].cpu(), step.expected(turn))
    for name in step.copied(PLATFORM_COPIES):
        assert site(f"model.attention.{name}")["replayed"] == 2


def test_an_operator_that_is_written_in_place(hooked, site):
    """Query and key are copied in, turned, and copied back, all inside the group."""
    generator = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(torch.float16).to(DEVICE)  # noqa: E731
    tensors = {"query": strided.wider_rows(draw(2, 6, 4, 128)), "key": strided.transposed(draw(2, 6, 2, 128))}
    tensors |= {"cos": draw(2, 6, 1, 128), "sin": draw(2, 6, 1, 128)}
    op, groups = torch.ops.npu.npu_apply_rotary_pos_emb, Groups()
    with torch.npu.graph(groups.graph), groups.group():
        results = op(*tensors.values())
    assert [result.data_ptr() for result in results] == [tensors[name].data_ptr() for name in ("query", "key")]
    assert len(tasks(groups.graph)) == 5
    references = weak(tensors)
    for number in range(3):
        litter()
        refill(tensors, number)
        dense = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors.values()]
        op(*dense)
        with groups.update():
            op(*references.values())
        groups.replay()
        for name, right in zip(("query", "key"), dense[:2], strict=True):
            assert torch.equal(tensors[name].cpu(), right.cpu())
    assert site("npu_apply_rotary_pos_emb.query")["replayed"] == 6


def test_a_capture_without_the_hook_is_left_alone(sim):
    """Nothing is kept for groups of calls that are contiguous anyway, and they are updated as ever."""
    step = Step.of("mla_tnd", "none", "v1.out")
    one = Attention.prepare(step).capture()
    for turn in (1, 0):
        one.check(turn)
    assert capture(lambda: None)[0] is not None
