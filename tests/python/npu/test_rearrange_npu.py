"""torch.ops.infini on NPU tensors: values, gradients, tracing, streams, what is refused."""

import cases
import infini_rearrange as ir
import pytest
import torch
from torch.library import opcheck

DEVICE = "npu:0"
R = ir.rearrange
C = ir.contiguous
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.int32,
    torch.float64,
    torch.int64,
    torch.complex64,
    torch.complex128,
]


def filled(*shape, dtype=torch.float32):
    count = int(torch.Size(shape).numel())
    if dtype.is_complex:
        return torch.complex(torch.arange(count).double(), -torch.arange(count).double()).to(dtype).reshape(shape)
    return (torch.arange(count) % 120).to(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype):
    host = filled(6, 5, 4, dtype=dtype)
    device = host.to(DEVICE)
    for view in (
        lambda x: x,
        lambda x: x.permute(2, 0, 1),
        lambda x: x[1:, ::2, 1:3],
        lambda x: x[:, :1].expand(6, 7, 4),
        lambda x: x[0, 0, 0],
        lambda x: x[:0],
    ):
        moved = R(view(device))
        assert moved.is_contiguous()
        assert moved.device.type == "npu"
        assert moved.untyped_storage().data_ptr() != device.untyped_storage().data_ptr()
        assert torch.equal(moved.cpu(), view(host).contiguous())


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "complex32"])
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_every_dtype_by_its_bits(name):
    """Those that have few operators of their own."""
    dtype = getattr(torch, name)
    host = torch.arange(24 * dtype.itemsize, dtype=torch.uint8).view(dtype).reshape(4, 6)
    moved, out = R(host.to(DEVICE).t()), torch.empty(4, 6, dtype=dtype, device=DEVICE).t()
    R(host.to(DEVICE).t(), out=out)
    assert cases.contents(moved) == cases.contents(out) == cases.contents(host.t())


def test_conjugate_and_negative_views():
    host = filled(3, 4, dtype=torch.complex64)
    device = host.to(DEVICE)
    try:
        device.conj().clone().cpu()
    except RuntimeError as error:
        pytest.skip(f"the simulation has no conj: {str(error).splitlines()[0]}")
    moved = R(device.t().conj())
    assert not moved.is_conj()
    assert torch.equal(moved.cpu(), host.t().conj().resolve_conj())
    assert torch.equal(R(device.conj().imag).cpu(), -host.imag)


# What opcheck can look at here: its check of the autograd registration knows CPU, CUDA and XPU only, and its gradients
# need operators that the simulation does not have (test_gradients, test_gradients_through_a_compiled_step).
CHECKS = ("test_schema", "test_faketensor")


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(requires_grad):
    def view():
        return torch.arange(48.0, device=DEVICE).reshape(6, 8).t()[1:7].detach().requires_grad_(requires_grad)

    def check(op, *args, **kwargs):
        opcheck(op, args, kwargs, test_utils=CHECKS if requires_grad else (*CHECKS, "test_aot_dispatch_dynamic"))

    check(R.default, view())
    check(R.default, view(), site="model.key")
    check(C.default, view())
    check(C.default, view(), "model.key")
    check(C.default, torch.ones(3, 4, device=DEVICE, requires_grad=requires_grad))
    if not requires_grad:
        check(R.out, view(), out=torch.empty(6, 6, device=DEVICE).t())
        check(R.out, torch.ones(1, 6, device=DEVICE), out=torch.empty(6, 6, device=DEVICE))


def test_gradients():
    x = filled(4, 6).to(DEVICE).requires_grad_()
    weights = filled(6, 4).to(DEVICE)
    for op in (R, C):
        x.grad = None
        y = op(x.t())
        assert y.is_contiguous()
        (y * weights).sum().backward()
        assert torch.equal(x.grad.cpu(), filled(6, 4).t())
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        R(x.t(), out=torch.empty(6, 4, device=DEVICE))


def test_inference_mode():
    with torch.inference_mode():
        x = filled(4, 6).to(DEVICE)
        y, out = R(x.t()), torch.empty(4, 6, device=DEVICE).t()
        R(x.t(), out=out)
        assert y.is_inference()
        assert C(y) is y
        for moved in (y, out, C(x.t())):
            assert torch.equal(moved.cpu(), filled(4, 6).t())


def test_out_is_written_through_its_own_strides(sim, site):
    for source in (lambda x: x.t(), lambda x: x[:6, 1:2].expand(6, 8), lambda x: x[:6, ::2]):
        host = filled(8, 16)[:, :6] if source(filled(8, 6)).shape == (6, 8) else filled(8, 16)
        view, expected = source(host.to(DEVICE)), source(host)
        base = torch.full((10, 40), 7.0, device=DEVICE)
        target = base[1:9, 3:39:6].t()
        sim.reset()
        assert R(view, out=target, site="model.out") is target
        assert sim.copies() == 1
        held = torch.full((10, 40), 7.0)
        held[1:9, 3:39:6].t().copy_(expected)
        assert torch.equal(base.cpu(), held)
    assert site("model.out")["copied"] == 3


def test_out_broadcasts():
    target = torch.empty(5, 4, device=DEVICE).t()
    R(filled(5).to(DEVICE), out=target)
    assert torch.equal(target.cpu(), filled(5).expand(4, 5))


def test_more_dims_than_aclnn_takes(sim):
    """Merged where that gives eight or fewer; else in pieces, where torch_npu's own copy is refused."""
    host = filled(2, 512)
    merging = host.to(DEVICE)[0].view([2] * 9).permute(8, *range(8))
    sim.reset()
    assert torch.equal(R(merging).cpu(), host[0].view([2] * 9).permute(8, *range(8)))
    assert sim.copies() == 1
    order = [8, 0, 7, 1, 6, 2, 5, 3, 4]
    scattered = host.to(DEVICE)[1].view([2] * 9).permute(order)
    with pytest.raises(RuntimeError, match="aclnnInplaceCopy"):
        scattered.contiguous()
    sim.reset()
    assert torch.equal(R(scattered).cpu(), host[1].view([2] * 9).permute(order))
    assert 1 <= sim.copies() <= 2
    wide = [10, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    host = filled(2048)
    moved = R(host.to(DEVICE).view([2] * 11).permute(wide), site="model.wide")
    assert torch.equal(moved.cpu(), host.view([2] * 11).permute(wide))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend, site):
    def step(x):
        return R(x.t(), site="model.a") + C(x, "model.b").t().relu() + C(x.t(), "model.c")

    x = filled(4, 6)
    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x.to(DEVICE)).cpu(), 3 * x.t())
    assert [site(f"model.{name}")["copied"] for name in "abc"] == [2, 0, 2]


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_through_a_compiled_step(dynamic):
    def step(x, weights):
        return (C(R(x.t(), site="model.a") * weights, "model.b") * 2).sum()

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (4, 5):
        x, weights = filled(rows, 6).to(DEVICE).requires_grad_(), filled(6, rows)
        compiled(x, weights.to(DEVICE)).backward()
        assert torch.equal(x.grad.cpu(), 2 * weights.t())


def test_compiled_out():
    def step(x, out):
        R(x.t(), out=out)
        return out * 2

    # Dynamo itself takes no strided out.
    x, out = filled(4, 6), torch.zeros(6, 4, device=DEVICE)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x.to(DEVICE), out).cpu(), 2 * x.t())
    assert torch.equal(out.cpu(), x.t())


def test_copies_run_on_the_current_stream():
    """Each copy follows the work of its own stream, and only that: the values say so, over many rounds."""
    streams = [torch.npu.Stream() for _ in range(2)]
    bases = [torch.zeros(64, 96, device=DEVICE) for _ in streams]
    torch.npu.synchronize()
    results = [[], []]
    for round_ in range(20):
        for stream, base, moved in zip(streams, bases, results, strict=True):
            with torch.npu.stream(stream):
                base.add_(1)
                moved.append((round_ + 1, R(base.t())))
    for stream in streams:
        torch.npu.current_stream().wait_stream(stream)
    for moved in results:
        for value, tensor in moved:
            assert (tensor.cpu() == value).all()


def test_a_copy_can_be_waited_for_on_another_stream():
    side, x = torch.npu.Stream(), filled(64, 96).to(DEVICE)
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        moved = R(x.t()) * 2
    torch.npu.current_stream().wait_stream(side)
    assert torch.equal((moved + 1).cpu(), filled(64, 96).t() * 2 + 1)


def test_what_is_refused():
    x = filled(4, 6).to(DEVICE)
    with pytest.raises(RuntimeError, match=r"out is on cpu, self is on npu:0"):
        R(x.t(), out=torch.empty(6, 4))
    with pytest.raises(RuntimeError, match=r"out is on npu:0, self is on cpu"):
        R(filled(4, 6).t(), out=torch.empty(6, 4, device=DEVICE))
    with pytest.raises(RuntimeError, match="dtype"):
        R(x.t(), out=torch.empty(6, 4, dtype=torch.float16, device=DEVICE))
    with pytest.raises(RuntimeError, match="may write some element twice"):
        R(x[0], out=torch.empty(6, device=DEVICE).expand(4, 6))
    base = filled(32).to(DEVICE)
    with pytest.raises(RuntimeError, match="overlap"):
        R(base[:16], out=base[8:24])
    assert torch.equal(base.cpu(), filled(32))
    with pytest.raises(RuntimeError):
        R(x, out=torch.empty(5, 6, device=DEVICE))


def test_private_formats_are_left_to_torch_npu(sim):
    """A tensor whose memory is tiled (FRACTAL_NZ) is never read by its strides: torch_npu copies it, or refuses."""
    import torch_npu

    tiled = torch_npu.empty_with_format((32, 64), dtype=torch.float16, device=DEVICE, acl_format=29).t()
    assert int(torch_npu.get_npu_format(tiled)) == 29
    copies = sim.calls("aclnnInplaceCopy")
    with pytest.raises(RuntimeError, match=r"copy_ do not support internal format"):
        R(tiled)
    assert sim.calls("aclnnInplaceCopy") == copies
    ir.install()
    try:
        plain = torch.zeros(64, 32, dtype=torch.float16, device=DEVICE)
        positions = torch.arange(64, device=DEVICE)
        cos_sin = torch.zeros(64, 32, dtype=torch.float16, device=DEVICE)
        copies_before = sim.calls("aclnnInplaceCopy")
        with pytest.raises(RuntimeError, match="npu_mrope do not support internal format"):
            torch.ops.npu.npu_mrope(positions, tiled, plain, cos_sin, 32, mrope_section=[0, 0, 0])
        assert sim.calls("aclnnInplaceCopy") == copies_before
    finally:
        ir.uninstall()


def test_nothing_synchronizes(sim):
    x = filled(64, 96).to(DEVICE)
    R(x.t())
    sim.reset()
    names = ("aclrtSynchronizeStream", "aclrtSynchronizeDevice", "aclrtSynchronizeStreamWithTimeout", "aclrtMemcpy")
    before = [sim._library.cann_sim_calls(name.encode()) for name in names]
    for _ in range(5):
        R(x.t(), site="model.key")
    assert [sim._library.cann_sim_calls(name.encode()) for name in names] == before
    assert cases.contents(R(x.t())) == cases.contents(filled(64, 96).t())
