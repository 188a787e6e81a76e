"""Graph handlers that others register, before or after: their operators are covered at the next capture."""

import infini_rearrange as ir
import platform_facts as facts
import pytest
import strided
import torch
import torch_npu
from capture_cases import COPY, DEVICE, Step, capture, capturing, refill, replayed, tasks
from torch_npu.npu.graphs import _NPU_GRAPH_OP_HANDLERS as HANDLERS

AUTO = {"auto_dispatch_capture": True}
ROTARY = "npu_apply_rotary_pos_emb"
PLATFORM_COPIES = facts.FUSED_ATTENTION == facts.COPIES


@pytest.fixture(autouse=True)
def registry():
    before = dict(HANDLERS)
    yield HANDLERS
    HANDLERS.clear()
    HANDLERS.update(before)


def handler(*names, base=torch_npu.npu.NpuGraphOpHandler):
    """Registers a handler that notes what it is given."""

    @torch_npu.npu.register_npu_graph_handler(list(names))
    class Noting(base):
        prepared, finished = [], []

        @classmethod
        def prepare_capture(cls, func, args, kwargs):
            given = [*args, *(kwargs or {}).values()]
            cls.prepared.append([tensor for tensor in given if isinstance(tensor, torch.Tensor)])
            return super().prepare_capture(func, args, kwargs)

        @classmethod
        def postprocess_result(cls, result, kwargs):
            cls.finished.append(result)
            return super().postprocess_result(result, kwargs)

    return Noting


def rotary_tensors():
    generator = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(torch.float16).to(DEVICE)  # noqa: E731
    query, key = strided.wider_rows(draw(2, 6, 4, 128)), strided.transposed(draw(2, 6, 2, 128))
    return {"query": query, "key": key, "cos": draw(2, 6, 1, 128), "sin": draw(2, 6, 1, 128)}


def rotated(tensors):
    """What the operator makes of contiguous copies, on the host."""
    dense = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    torch.ops.npu.npu_apply_rotary_pos_emb(*dense.values())
    return dense["query"].cpu(), dense["key"].cpu()


def test_a_handler_for_an_operator_that_is_written_in_place(hooked, site):
    noting = handler(f"{ROTARY}.default")
    tensors = rotary_tensors()
    graph, results = capture(lambda: torch.ops.npu.npu_apply_rotary_pos_emb(*tensors.values()), **AUTO)
    assert [tensor.is_contiguous() for tensor in noting.prepared[0]] == [True] * 4
    assert [kind for kind, _ in tasks(graph)] == ["task", "task", "group", "task", "task"]
    assert {name for kind, name in tasks(graph) if kind == "task"} == {COPY}
    for result, name in zip(results, ("query", "key"), strict=True):
        assert result.data_ptr() == tensors[name].data_ptr()
        assert result.stride() == tensors[name].stride()
    for number in range(3):
        refill(tensors, number)
        expected = rotated(tensors)
        graph.update(cpu_update_input=[{}])
        replayed(graph)
        assert torch.equal(tensors["query"].cpu(), expected[0])
        assert torch.equal(tensors["key"].cpu(), expected[1])
    for name in ("query", "key"):
        figures = site(f"{ROTARY}.{name}")
        assert (figures["captured"], figures["replayed"]) == (2, 6)


def test_a_handler_registered_after_other_captures(hooked):
    """The first capture has no handler for the operator: no group. The next one has."""
    tensors = rotary_tensors()
    call = lambda: torch.ops.npu.npu_apply_rotary_pos_emb(*tensors.values())  # noqa: E731
    graph, _ = capture(call, **AUTO)
    assert [kind for kind, _ in tasks(graph)] == ["task"] * 5
    noting = handler(f"{ROTARY}.default")
    graph, _ = capture(call, **AUTO)
    assert [kind for kind, _ in tasks(graph)] == ["task", "task", "group", "task", "task"]
    assert len(noting.prepared) == len(noting.finished) == 1


@pytest.mark.parametrize("base", ["the original", "what is registered"])
def test_a_handler_in_place_of_torch_npus_own(base, hooked):
    """A server's own, derived from the class of torch_npu's module or from what it finds in the registry."""
    capture(lambda: None, **AUTO)
    registered = HANDLERS["npu_fused_infer_attention_score.default"]
    original = registered.__mro__[1]
    assert original.__module__.startswith("torch_npu")
    noting = handler(
        "npu_fused_infer_attention_score.default",
        "npu_fused_infer_attention_score.out",
        base=original if base == "the original" else registered,
    )
    for operator in ("v1", "v1.out"):
        step = Step.of("mla_tnd", "all", operator)
        into = step.strided_results() if operator == "v1.out" else None
        graph, result = capture(lambda step=step, into=into: step.call(0, into), **AUTO)
        for turn in (0, 1):
            graph.update(cpu_update_input=[step.lengths[turn]])
            replayed(graph)
            assert torch.equal(result.cpu(), step.expected(turn))
        assert [kind for kind, _ in tasks(graph)].count("group") == 1
    assert len(noting.prepared) == len(noting.finished) == 2


def test_a_handler_that_hands_on_to_the_registered_one(hooked):
    """It wraps what it found in the registry, which makes copies itself."""
    capture(lambda: None, **AUTO)
    name = "npu_fused_infer_attention_score.out"
    registered = HANDLERS[name]

    class Outer(torch_npu.npu.NpuGraphOpHandler):
        UPDATE_SPECS = registered.UPDATE_SPECS

        @classmethod
        def prepare_capture(cls, func, args, kwargs):
            return registered.prepare_capture(func, args, kwargs)

        @classmethod
        def postprocess_result(cls, result, kwargs):
            return registered.postprocess_result(result, kwargs)

    HANDLERS[name] = Outer
    step = Step.of("mla_tnd", "all", "v1.out")
    into = step.strided_results()
    graph, result = capture(lambda: step.call(0, into), **AUTO)
    assert result is into[0]
    for turn in (0, 1):
        graph.update(cpu_update_input=[step.lengths[turn]])
        replayed(graph)
        assert torch.equal(into[0].cpu(), step.expected(turn))


def test_handlers_of_operators_without_contracts_get_what_was_given(hooked, sim):
    noting = handler("mul.out")
    x, y = torch.ones(6, 4, device=DEVICE).t(), torch.full((4, 6), 3.0, device=DEVICE)
    out = torch.zeros(6, 4, device=DEVICE).t()
    graph, result = capture(lambda: torch.mul(x, y, out=out), **AUTO)
    assert [given is mine for given, mine in zip(noting.prepared[0], (x, y, out), strict=True)] == [True] * 3
    assert [kind for kind, _ in tasks(graph)] == ["group"]
    x.fill_(5)
    graph.update(cpu_update_input=[{}])
    replayed(graph)
    assert result is out
    assert (out.cpu() == 15).all()
    assert not any(one["calls"] for one in ir.profile()["sites"])


def test_a_handler_that_fails(hooked, site):
    """Its error arrives, nothing of the prepared call stays, and the next capture is as any other."""

    @torch_npu.npu.register_npu_graph_handler([f"{ROTARY}.default"])
    class Failing(torch_npu.npu.NpuGraphOpHandler):
        @classmethod
        def prepare_capture(cls, func, args, kwargs):
            raise LookupError("no workspace for this one")

    tensors = rotary_tensors()
    with pytest.raises(LookupError, match="no workspace"):
        capture(lambda: torch.ops.npu.npu_apply_rotary_pos_emb(*tensors.values()), **AUTO)
    assert capturing() == 0
    expected = rotated(tensors)
    torch.ops.npu.npu_apply_rotary_pos_emb(*tensors.values())  # eager: copies are made and counted
    assert torch.equal(tensors["query"].cpu(), expected[0])
    assert site(f"{ROTARY}.query")["copied"] == 1
    step = Step.of("mla_tnd", "all")
    graph, result = capture(step.call, **AUTO)
    graph.update(cpu_update_input=[step.lengths[1]])
    replayed(graph)
    assert torch.equal(result.cpu(), step.expected(1))


def test_a_handler_that_declines(hooked):
    """`should_handle` says no: the call is captured as any other, copies and all."""

    @torch_npu.npu.register_npu_graph_handler([f"{ROTARY}.default"])
    class Declining(torch_npu.npu.NpuGraphOpHandler):
        @classmethod
        def should_handle(cls, func, args, kwargs):
            return False

    tensors = rotary_tensors()
    graph, _ = capture(lambda: torch.ops.npu.npu_apply_rotary_pos_emb(*tensors.values()), **AUTO)
    assert [kind for kind, _ in tasks(graph)] == ["task"] * 5
    refill(tensors, 1)
    expected = rotated(tensors)
    replayed(graph)
    assert torch.equal(tensors["query"].cpu(), expected[0])
    assert torch.equal(tensors["key"].cpu(), expected[1])
