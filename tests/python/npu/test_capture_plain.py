"""Captures without task groups: every way to a copy is captured and replayed, and does nothing illegal."""

import cases
import infini_rearrange as ir
import platform_facts as facts
import pytest
import strided
import torch
from capture_cases import COPY, DEVICE, SITE, Groups, Step, calls, capture, capturing, litter, refill, replayed, tasks

CASES = cases.load()
PLATFORM_COPIES = facts.FUSED_ATTENTION == facts.COPIES
every_mode = pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
# Waiting and asking, which no capture allows, and memory that the host touches.
ILLEGAL = (
    "aclrtSynchronizeStream",
    "aclrtSynchronizeStreamWithTimeout",
    "aclrtSynchronizeDevice",
    "aclrtSynchronizeDeviceWithTimeout",
    "aclrtSynchronizeEvent",
    "aclrtSynchronizeEventWithTimeout",
    "aclrtStreamQuery",
    "aclrtQueryEvent",
    "aclrtQueryEventStatus",
    "aclrtQueryEventWaitStatus",
    "aclrtEventElapsedTime",
    "aclrtEventGetTimestamp",
    "aclrtMemcpy",
    "aclrtMemcpyAsync",
    "aclrtMallocHost",
)
EVENTS = (
    "aclrtCreateEvent",
    "aclrtCreateEventWithFlag",
    "aclrtCreateEventExWithFlag",
    "aclrtRecordEvent",
    "aclrtDestroyEvent",
)


def storage_of(view):
    return torch.as_strided(view, (view.untyped_storage().nbytes() // view.itemsize,), (1,), 0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_layout(case, hooked):
    """The storage is filled after the capture: what a replay gives was copied by the replay."""
    view = case.tensor(DEVICE)
    values = storage_of(view).clone()
    storage_of(view).zero_()
    graph, moved = capture(lambda: ir.rearrange(view, site="model.tensor"))
    assert [name for _, name in tasks(graph)] == ([COPY] if case.bytes else [])
    storage_of(view).copy_(values)
    replayed(graph)
    assert moved.is_contiguous()
    assert cases.contents(moved) == case.expected()


COPIES = {
    "rearrange": lambda x: ir.rearrange(x, site="model.x"),
    "rearrange without a site": torch.ops.infini.rearrange,
    "rearrange.out": lambda x: ir.rearrange(x, site="model.x", out=torch.zeros_like(x).contiguous()),
    "rearrange.out into strides": lambda x: ir.rearrange(x, out=torch.zeros(*x.shape, 2, device=DEVICE)[..., 1]),
    "contiguous": lambda x: ir.contiguous(x, "model.x"),
    "contiguous without a site": torch.ops.infini.contiguous,
    "between other operators": lambda x: ir.rearrange((x * 2).t()).t() / 2,
}


@pytest.mark.parametrize("kind", strided.KINDS.values(), ids=strided.KINDS)
@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_replays_copy_what_is_there(copy, kind):
    x = kind(torch.zeros(6, 8, device=DEVICE))
    graph, moved = capture(lambda: copy(x))
    for number in range(3):
        litter()
        refill({"x": x}, number)
        replayed(graph)
        assert torch.equal(moved.cpu(), x.cpu())
        assert x.cpu().abs().sum() > 0


def test_into_a_tensor_from_outside(site):
    x, out = torch.zeros(4, 6, device=DEVICE), torch.zeros(4, 6, device=DEVICE).t()
    graph, result = capture(lambda: ir.rearrange(x.t(), site="model.x", out=out))
    assert result is out
    for number in range(2):
        refill({"x": x}, number)
        replayed(graph)
        assert torch.equal(out.cpu(), x.cpu().t())
    assert (site("model.x")["captured"], site("model.x")["replayed"]) == (1, 2)


def test_a_contiguous_tensor_is_handed_on(site):
    x = torch.ones(4, 6, device=DEVICE)
    graph, result = capture(lambda: ir.contiguous(x, "model.x"))
    assert result is x
    assert tasks(graph) == []
    assert (site("model.x")["contiguous"], site("model.x")["calls"]) == (1, 1)


@pytest.mark.parametrize("scenario", ["mla_tnd", "bsh", "paged"])
@pytest.mark.parametrize("operator", ["v1", "v1.out", "v2", "v2.out"])
def test_fused_attention_without_a_group(scenario, operator, hooked, site):
    step = Step.of(scenario, "all", operator)
    into = step.strided_results() if step.operator.out else None
    graph, result = capture(lambda: step.call(0, into))
    copied = step.copied(PLATFORM_COPIES)
    names = [name for _, name in tasks(graph)]
    assert names.count(COPY) == len(copied) + (2 if into else 0)
    for number in range(3):
        litter()
        refill(step.tensors, number)
        replayed(graph)
        assert torch.equal(result.cpu(), step.expected(0))
    for name in copied:
        assert site(f"{step.operator.site}.{name}")["replayed"] == 3


@pytest.mark.every_platform
def test_fused_attention_on_every_platform(hooked, sim, site):
    step = Step.of("mla_tnd", "all")
    sim.reset()
    graph, result = capture(step.call)
    assert sim.hidden() == (0, 0)
    copied = step.copied(PLATFORM_COPIES)
    for number in range(2):
        refill(step.tensors, number)
        replayed(graph)
        hidden = sim.hidden()
        assert torch.equal(result.cpu(), step.expected(0))
    assert hidden == (
        2 * (len(step.names) - len(copied)),
        2 * sum(step.tensors[name].nbytes for name in step.names if name not in copied),
    )
    for name in step.names:
        assert site(f"{SITE}.{name}")["replayed" if name in copied else "hidden"] == 2


def test_an_operator_that_is_written_in_place(hooked, site):
    generator = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(torch.float16).to(DEVICE)  # noqa: E731
    tensors = {"query": strided.wider_rows(draw(2, 6, 4, 128)), "key": strided.transposed(draw(2, 6, 2, 128))}
    tensors |= {"cos": draw(2, 6, 1, 128), "sin": draw(2, 6, 1, 128)}
    op = torch.ops.npu.npu_apply_rotary_pos_emb
    graph, results = capture(lambda: op(*tensors.values()))
    for result, name in zip(results, ("query", "key"), strict=True):
        assert (result.data_ptr(), result.stride()) == (tensors[name].data_ptr(), tensors[name].stride())
    for number in range(3):
        refill(tensors, number)
        dense = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors.values()]
        op(*dense)
        replayed(graph)
        for name, right in zip(("query", "key"), dense[:2], strict=True):
            assert torch.equal(tensors[name].cpu(), right.cpu())
    for name in ("query", "key"):
        assert site(f"npu_apply_rotary_pos_emb.{name}")["replayed"] == 6


def test_on_a_forked_stream(hooked):
    """Copies go to the stream that calls them, which joins the capture's own again."""
    x, side = torch.zeros(4, 6, device=DEVICE), torch.npu.Stream()

    def forked():
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with torch.npu.stream(side):
            moved = ir.rearrange(x.t())
        main.wait_stream(side)
        return moved * 2

    graph, result = capture(forked)
    refill({"x": x}, 1)
    replayed(graph)
    assert torch.equal(result.cpu(), x.cpu().t() * 2)


# Legality.


def everything(step):
    """Every kind of call that the package makes, with and without task groups."""
    x = step.tensors["key"]
    yield lambda: ir.rearrange(x, site="model.x")
    yield lambda: ir.rearrange(x, out=torch.empty_like(x).contiguous())
    yield lambda: ir.contiguous(x, "model.x")
    yield lambda: step.call(0, step.strided_results() if step.operator.out else None)


@every_mode
@pytest.mark.parametrize("auto", [False, True], ids=["plain", "auto dispatch"])
@pytest.mark.parametrize("operator", ["v1", "v2.out"])
def test_nothing_illegal_is_called_while_capturing(operator, auto, mode, hooked):
    step = Step.of("mla_tnd", "all", operator)
    graph, found = torch.npu.NPUGraph(), []
    context = torch.npu.graph(graph, auto_dispatch_capture=auto, capture_error_mode=mode)
    with context:
        before = calls(*ILLEGAL)
        for call in everything(step):
            call()
            found.append(calls(*ILLEGAL) - before)
        assert capturing() == 1
        ir.profile()
        ir.reset_profile()
        found.append(calls(*ILLEGAL) - before)
    # The task queue has come to an end by now.
    assert found == [0] * 5
    assert calls(*ILLEGAL) == before
    assert capturing() == 0


@every_mode
def test_nothing_illegal_in_a_group(mode, hooked):
    step, groups = Step.of("mla_tnd", "all", "v1.out"), Groups()
    workspace = step.operator.max_workspace(step.tensors, step.scenario.options)
    into = step.strided_results()
    packet = torch.ops.npu.npu_fused_infer_attention_score
    with torch.npu.graph(groups.graph, capture_error_mode=mode):
        before = calls(*ILLEGAL)
        with groups.group():
            packet.out(**step.tensors, **step.scenario.options, workspace=workspace, out=into)
    assert calls(*ILLEGAL) == before
    before = calls(*ILLEGAL, *EVENTS)
    with groups.update():
        packet.out(**step.tensors, **step.scenario.options, workspace=workspace, out=into)
    assert calls(*ILLEGAL, *EVENTS) == before


def test_no_more_memory_is_asked_of_the_device_than_torch_asks(hooked):
    """Copies come out of the graph's own pool, as torch's own copies do."""
    x = strided.transposed(torch.zeros(64, 64, device=DEVICE))
    asked = []
    for copy in (torch.Tensor.contiguous, ir.rearrange):
        with torch.npu.graph(torch.npu.NPUGraph()):
            before = calls("aclrtMalloc")
            copy(x)
            asked.append(calls("aclrtMalloc") - before)
    assert asked[1] == asked[0] <= 1


FIRST_USE = """
    import json, sys
    sys.path[:0] = ["tests/python/npu", "tests/python"]
    import torch
    x = torch.arange(24.0, device="npu:0").view(4, 6)
    y = torch.randn(6, 4, 96, dtype=torch.float16, device="npu:0")
    key = y[..., :64]
    options = dict(num_heads=4, num_key_value_heads=4, input_layout="TND", scale=0.125,
                   actual_seq_lengths=[6], actual_seq_lengths_kv=[6])
    op = torch.ops.npu.npu_fused_infer_attention_score
    dense = key.contiguous()
    right = op(dense, dense, dense, **options)[0].cpu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture={auto}, capture_error_mode={mode!r}):
        import infini_rearrange as ir
        ir.install()
        moved = ir.rearrange(x.t(), site="model.x")
        same = ir.contiguous(x.t(), "model.y")
        out = ir.rearrange(x, out=torch.empty(6, 4, device="npu:0").t())
        with ir.policy("warn"):
            result = op(key, key, key, **options)[0]
    x.mul_(3)
    {update}
    graph.replay()
    torch.npu.synchronize()
    found = [torch.equal(tensor.cpu(), x.cpu().t()) for tensor in (moved, same, out.t())]
    found.append(torch.equal(result.cpu(), right))
    print(json.dumps(found))
"""


@pytest.mark.parametrize(("mode", "task_queue"), [("global", "1"), ("thread_local", "0")])
def test_a_first_use_of_everything_inside_a_capture(mode, task_queue, fresh):
    """Import, install and the first copies happen while a capture is under way."""
    found = fresh(FIRST_USE.format(auto=False, mode=mode, update=""), TASK_QUEUE_ENABLE=task_queue)
    assert found == [True] * 4


def test_a_first_call_inside_an_auto_capture(fresh):
    """Imported before, as it has to be to see the capture begin; everything else inside."""
    code = FIRST_USE.format(auto=True, mode="global", update="graph.update([{}])")
    found = fresh("    import infini_rearrange\n" + code)
    assert found == [True] * 4
