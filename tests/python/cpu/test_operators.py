"""torch.ops.infini on CPU tensors: values, layouts, gradients, what is refused."""

import infini_rearrange as ir
import pytest
import torch
from torch.library import opcheck

R = torch.ops.infini.rearrange
C = torch.ops.infini.contiguous
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.int32,
    torch.float64,
    torch.int64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def filled(*shape, dtype=torch.float32):
    count = int(torch.Size(shape).numel())
    if dtype.is_complex:
        return torch.randn(count, dtype=dtype).reshape(shape)
    return (torch.arange(count) % 120).to(dtype).reshape(shape)


def bits(tensor):
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.contiguous().reshape(-1).view(torch.uint8)


def same_bits(a, b):
    return a.shape == b.shape and torch.equal(bits(a), bits(b))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_moved_bit_for_bit(dtype):
    x = filled(6, 5, 4, dtype=dtype)
    for view in (x, x.permute(2, 0, 1), x[1:, ::2, 1:3], x[:, :1].expand(6, 7, 4), x[0, 0, 0], x[:0]):
        moved = R(view)
        assert moved.is_contiguous()
        assert moved.shape == view.shape
        assert moved.data_ptr() != view.data_ptr() or view.numel() == 0
        assert same_bits(moved, view.clone(memory_format=torch.contiguous_format))


def test_contiguous_returns_the_tensor_itself_where_it_is_contiguous():
    x = filled(4, 5)
    assert C(x) is x
    odd = torch.as_strided(x, (4, 1, 5), (5, 999, 1))
    assert C(odd) is odd
    assert C(x[:0].t()).numel() == 0
    assert C(x.t()).is_contiguous()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(requires_grad):
    def view():
        return torch.randn(6, 8).t()[1:7].detach().requires_grad_(requires_grad)

    opcheck(R.default, (view(),))
    opcheck(R.default, (view(),), {"site": "model.key"})
    opcheck(C.default, (view(),))
    opcheck(C.default, (view(), "model.key"))
    opcheck(C.default, (torch.randn(3, 4, requires_grad=requires_grad),))
    if not requires_grad:
        opcheck(R.out, (view(),), {"out": torch.empty(6, 6).t()})
        opcheck(R.out, (torch.randn(1, 6),), {"out": torch.empty(6, 6)})
    opcheck(R.default, (torch.randn(3, 4, dtype=torch.complex64).t().conj(),))


def test_the_gradient_is_the_identity():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    R(x.t(), site="a.b").mul(torch.arange(12.0).reshape(4, 3)).sum().backward()
    assert torch.equal(x.grad, torch.arange(12.0, dtype=torch.float64).reshape(4, 3).t())
    assert torch.autograd.gradcheck(lambda t: R(t.t()), (x,))
    assert torch.autograd.gradgradcheck(lambda t: R(t.t()) ** 2, (x,))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        R.out(x, out=torch.empty(3, 4, dtype=torch.float64))


def test_conj_and_neg_views_are_resolved():
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert torch.equal(R(x.t().conj()), x.t().conj().resolve_conj())
    assert not R(x.conj()).is_conj()
    neg = x.conj().imag
    assert neg.is_neg()
    assert torch.equal(R(neg.t()), neg.t().resolve_neg())
    out = torch.empty(4, 3, dtype=torch.complex64)
    R.out(x.t().conj(), out=out)
    assert torch.equal(out, x.t().conj().resolve_conj())


def test_inference_mode():
    with torch.inference_mode():
        x = filled(4, 5)
        assert R(x.t()).is_inference()
        assert torch.equal(C(x.t()), x.t())


def test_out_takes_any_layout_on_both_sides():
    buffer = filled(4, 16)
    out = torch.zeros(6, 8, 4).permute(2, 0, 1)[:, ::2, 1:5]
    source = torch.randn(4, 1, 4)
    version = out._version
    result = R.out(source, out=out)
    assert result is out
    assert out._version == version + 1
    assert torch.equal(out, source.expand(4, 3, 4))
    # Slices of one buffer that interleave without sharing an element.
    R.out(buffer[:, :8].clone(), out=buffer[:, 8:])
    R.out(buffer[:, :8], out=buffer[:, 8:])
    assert torch.equal(buffer[:, :8], buffer[:, 8:])


@pytest.mark.parametrize(
    ("out", "source", "words"),
    [
        (lambda b: b[:, 1:5], lambda b: b[:, :4], "share memory"),
        (lambda b: b[:4, :4].t(), lambda b: b[:4, :4], "share memory"),
        (lambda b: b, lambda b: b, "share memory"),
        (lambda b: torch.zeros(1, 4).expand(4, 4), lambda b: b[:4, :4], "twice"),
        (lambda b: torch.zeros(7).unfold(0, 4, 1), lambda b: b[:4, :4], "twice"),
        (lambda b: torch.zeros(4, 4, dtype=torch.int32), lambda b: b[:4, :4], "dtype"),
        (lambda b: torch.zeros(5, 4), lambda b: b[:4, :4], "expanded size"),
        (lambda b: torch.zeros(4, 4, device="meta"), lambda b: b[:4, :4], "device"),
    ],
)
def test_out_refuses(out, source, words):
    buffer = filled(8, 8)
    before = buffer.clone()
    with pytest.raises(RuntimeError, match=words):
        R.out(source(buffer), out=out(buffer))
    assert torch.equal(buffer, before)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    ],
    ids=["sparse", "csr", "nested", "quantized"],
)
@pytest.mark.parametrize("op", [R, C], ids=["rearrange", "contiguous"])
def test_what_is_not_a_strided_tensor_is_refused(op, tensor):
    with pytest.raises(RuntimeError, match="infini::rearrange: self must"):
        op(tensor)


def test_wrong_arguments_are_torchs_own_errors():
    for wrong in ([1, 2], "x", None, 3.0):
        with pytest.raises((RuntimeError, TypeError), match="rearrange"):
            R(wrong)


def test_more_dimensions_than_copy_engines_take():
    x = filled(2, 3, 1, 2, 3, 2, 1, 2, 2)
    view = x.permute(8, 7, 6, 5, 4, 3, 2, 1, 0)
    assert torch.equal(R(view), view)
    deep = torch.arange(2.0**12).reshape([2] * 12)
    view = deep.permute(*range(11, -1, -1))[::1, 1:]
    assert torch.equal(R(view), view)


def test_counts_of_explicit_calls(site):
    x = filled(4, 5)
    R(x.t())
    R(x.t(), site="model.key")
    C(x, "model.key")
    C(x.t(), "model.key")
    assert site("infini.rearrange")["copied"] == 1
    figures = site("model.key")
    assert (figures["copied"], figures["contiguous"], figures["calls"]) == (2, 1, 2)
    assert figures["bytes_copied"] == 2 * x.nbytes
    ir.reset_profile()
    assert ir.profile()["sites"] == []


def test_out_is_seen_to_change_in_inference_mode_and_from_foreign_storages():
    weight, z = torch.randn(3, requires_grad=True), torch.ones(3)
    loss = (weight * z).sum()
    with torch.inference_mode():
        R.out(torch.full((3,), 7.0), out=z)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    array = torch.arange(16.0).numpy()
    one, other = torch.from_numpy(array)[:8], torch.from_numpy(array[4:])[:8]
    with pytest.raises(RuntimeError, match="share memory"):
        R.out(one, out=other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_strict_and_off_hold_in_compiled_functions(backend):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: C(x.t(), "compiled.site") + 1, backend=backend, fullgraph=True)
    with ir.policy("strict"), pytest.raises(Exception, match="compiled.site"):
        compiled(torch.ones(2, 3))
    torch._dynamo.reset()
    with ir.policy("off"):
        assert torch.equal(compiled(torch.ones(2, 3)), torch.full((3, 2), 2.0))
    assert ir.profile()["sites"] == [] or all(one["copied"] == 0 for one in ir.profile()["sites"])
