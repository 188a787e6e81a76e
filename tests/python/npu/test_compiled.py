"""torch.compile on the NPU: backends that need no device compiler, around hooked operators and our own."""

import infini_rearrange as ir
import platform_facts as facts
import pytest
import strided
import torch
import torch_npu
from capture_cases import DEVICE, SITE, Step, capture, replayed

PLATFORM_COPIES = facts.FUSED_ATTENTION == facts.COPIES
BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def _no_cached_graphs():
    torch._dynamo.reset()


@pytest.mark.every_platform
@pytest.mark.parametrize("backend", BACKENDS)
def test_fused_attention(backend, hooked, site):
    step = Step.of("mla_tnd", "own")
    names = list(step.tensors)

    def function(*tensors):
        given = dict(zip(names, tensors, strict=True))
        return step.operator(given, step.scenario.options | step.operator.options(step.lengths[1])) * 2

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    result = compiled(*step.tensors.values())
    assert torch.equal(result.cpu(), (step.expected(1).to(DEVICE) * 2).cpu())
    for name in step.copied(PLATFORM_COPIES):
        assert site(f"{SITE}.{name}")["copied"] == 1
    with pytest.raises(ir.NonContiguousError), ir.policy("strict"):
        compiled(*step.tensors.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_rotary(backend, hooked):
    x = strided.wider_rows(torch.randn(2, 4, 3, 64, device=DEVICE))
    cos, sin = (torch.randn(1, 4, 1, 64, device=DEVICE) for _ in range(2))

    def function(x):
        return torch_npu.npu_rotary_mul(x, cos, sin) + 1

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x).cpu(), function(x.contiguous()).cpu())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_our_operators(backend, dynamic, site):
    def function(x):
        copy = torch.ops.infini.rearrange(x.mT, site="compiled.rearrange")
        return torch.ops.infini.contiguous(x.mT, "compiled.contiguous") + copy

    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    for rows in (5, 7):
        x = torch.randn(rows, 6, device=DEVICE)
        assert torch.equal(compiled(x).cpu(), function(x).cpu())
    assert site("compiled.contiguous")["copied"] == 4
    assert site("compiled.rearrange")["copied"] == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_function_is_captured_and_replayed(backend, hooked, site):
    step = Step.of("mla_tnd", "own")
    names = list(step.tensors)

    def function(*tensors):
        given = dict(zip(names, tensors, strict=True))
        return step.operator(given, step.scenario.options | step.operator.options(step.lengths[0])) * 2

    compiled = torch.compile(function, backend=backend)
    compiled(*step.tensors.values())
    ir.reset_profile()
    graph, result = capture(lambda: compiled(*step.tensors.values()))
    for _ in range(2):
        replayed(graph)
        assert torch.equal(result.cpu(), (step.expected(0).to(DEVICE) * 2).cpu())
    for name in step.copied(PLATFORM_COPIES):
        figures = site(f"{SITE}.{name}")
        assert (figures["copied"], figures["captured"], figures["replayed"]) == (0, 1, 2)
