"""torch.compile around the operators: one graph, static and dynamic shapes, and copies still counted."""

import pytest
import torch

R = torch.ops.infini.rearrange
C = torch.ops.infini.contiguous


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_one_graph(backend, dynamic, site):
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, dynamic=dynamic, backend=backend)
    def step(x):
        turned = C(x.transpose(0, 1), "compiled.turned")
        return R(turned[:, 1:]) + C(x, "compiled.plain").transpose(0, 1)[:, 1:]

    for rows in (3, 5, 8):
        x = torch.arange(rows * 4.0).reshape(rows, 4)
        expected = x.t()[:, 1:] * 2
        assert torch.equal(step(x), expected)
    # Traced away or not, each of the three runs copied once at the site.
    assert site("compiled.turned")["copied"] == 3
    assert site("compiled.plain")["copied"] == 0


def test_gradients_through_a_compiled_function():
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(x):
        return (C(x.t(), "a.b") * torch.arange(12.0).reshape(4, 3)).sum()

    x = torch.randn(3, 4, requires_grad=True)
    step(x).backward()
    assert torch.equal(x.grad, torch.arange(12.0).reshape(4, 3).t())


def test_out_in_a_compiled_function():
    torch._dynamo.reset()

    @torch.compile(backend="aot_eager")
    def step(x, out):
        R.out(x.t(), out=out)
        return out + 1

    x = torch.randn(3, 4)
    out = torch.zeros(3, 4).t()
    assert torch.equal(step(x, out), x.t() + 1)
    assert torch.equal(out, x.t())


def test_fake_tensors_leave_hook_and_figures_alone(hooked, ops, site):
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.library.register_fake("infini_test::gather", lambda tensors: tensors[0].new_empty(1), allow_override=True)
    with FakeTensorMode():
        ops.gather([torch.empty(3, 4).t()])
        assert C(torch.empty(3, 4).t(), "fake.x").is_contiguous()
    assert site("infini_test::gather.tensors")["calls"] == 0
    assert site("fake.x")["calls"] == 0
