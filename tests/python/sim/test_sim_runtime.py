"""The simulated CANN under the unmodified torch_npu: run with `tests/cann-sim/run .venv/bin/python -m pytest`."""

import ctypes
import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")
if "CANN_SIM_LIBRARY" not in os.environ:
    pytest.skip("needs tests/cann-sim/run", allow_module_level=True)

DEVICE = "npu:0"
DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


@pytest.fixture
def sim():
    library = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
    library.cann_sim_calls.restype = ctypes.c_uint64
    library.cann_sim_clock_ns.restype = ctypes.c_uint64
    library.cann_sim_clock_ns.argtypes = [ctypes.c_void_p]
    library.cann_sim_memory_used.restype = ctypes.c_uint64
    library.cann_sim_reset()
    yield library
    library.cann_sim_fault(None)


def run(code, **environment):
    """Runs code in a process of its own, under the same simulation."""
    full = {**os.environ, **environment}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=full, capture_output=True, text=True, timeout=300)


def sample(dtype, shape=(3, 4, 5)):
    count = torch.Size(shape).numel()
    if dtype.is_complex:
        return torch.complex(torch.arange(count).double(), -torch.arange(count).double()).to(dtype).view(shape)
    return (torch.arange(count) % 100).to(dtype).view(shape)


def test_the_device_is_there():
    assert torch.npu.is_available() and torch.npu.device_count() == 1
    assert torch.npu.get_device_name(0) == os.environ.get("CANN_SIM_SOC", "Ascend910B1")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip_and_strided_copies(dtype):
    host = sample(dtype)
    device = host.npu()
    assert device.device.type == "npu" and torch.equal(device.cpu(), host)
    for view in (
        lambda t: t.transpose(0, 2),
        lambda t: t[:, 1:3],
        lambda t: t[..., ::2],
        lambda t: t[:, :1].expand(3, 4, 5),
        lambda t: t.permute(1, 2, 0)[1:],
        lambda t: t[2, 3],
        lambda t: t[:0],
    ):
        assert torch.equal(view(device).contiguous().cpu(), view(host))
    target, expected = device.clone(), host.clone()
    target[:, 1:, ::2] = device[:, :-1, 1:4]
    expected[:, 1:, ::2] = host[:, :-1, 1:4]
    assert torch.equal(target.cpu(), expected)


@pytest.mark.parametrize("source", DTYPES[:10], ids=str)
def test_casts_agree_with_the_host(source):
    host = sample(source)
    for target in DTYPES[:10]:
        assert torch.equal(host.npu().to(target).cpu(), host.to(target)), target


def test_nine_dimensions_are_refused():
    view = torch.zeros(512, device=DEVICE).view([2] * 9).transpose(0, 8)
    with pytest.raises(RuntimeError, match="aclnnInplaceCopy"):
        view.contiguous()
    assert torch.ones(2, device=DEVICE).sum().item() == 2


def test_arithmetic_and_reductions():
    host = torch.arange(24.0).view(4, 6)
    device = host.npu()
    pairs = [
        (device + device[0], host + host[0]),
        (2 - device * 3 / 4, 2 - host * 3 / 4),
        (device.t() @ device, host.t() @ host),
        (device.softmax(0), host.softmax(0)),
        (torch.cat([device, device[:, :2]], 1), torch.cat([host, host[:, :2]], 1)),
        (device.sum(1), host.sum(1)),
        (device.mean(), host.mean()),
        (device.max(0)[1], host.max(0)[1]),
        (torch.where(device > 3, device, -device), torch.where(host > 3, host, -host)),
        (device[device > 5], host[host > 5]),
        (device[[3, 0]], host[[3, 0]]),
        (torch.full((2, 3), 2.5, device=DEVICE), torch.full((2, 3), 2.5)),
        (torch.arange(3, 9, 2, device=DEVICE), torch.arange(3, 9, 2)),
    ]
    for got, expected in pairs:
        torch.testing.assert_close(got.cpu(), expected)
    assert torch.equal(device, device.clone()) and not torch.equal(device, device + 1)
    assert torch.allclose(device, device + 1e-9)
    assert "device='npu:0'" in repr(device)


def test_random_numbers_are_plausible_and_repeatable():
    draw = lambda: torch.randn(4096, device=DEVICE).cpu()  # noqa: E731
    torch.npu.manual_seed(3)
    first, other = draw(), draw()
    torch.npu.manual_seed(3)
    assert torch.equal(draw(), first) and not torch.equal(first, other)
    assert abs(first.mean()) < 0.1 and abs(first.std() - 1) < 0.1


def test_streams_and_events_keep_their_order(sim):
    data = torch.arange(100_000.0, device=DEVICE)
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        doubled = data * 2
    torch.npu.current_stream().wait_stream(side)
    assert (doubled + 1).sum().item() == pytest.approx(2 * 4999950000.0 + 100_000, rel=1e-6)


def test_the_simulated_clock_repeats_and_strides_cost(sim):
    data = torch.zeros(64, 64, device=DEVICE)

    def elapsed(work):
        start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
        torch.npu.synchronize()
        start.record()
        work()
        end.record()
        torch.npu.synchronize()
        return start.elapsed_time(end)

    plain = [elapsed(data.clone) for _ in range(3)]
    strided = [elapsed(data.t().contiguous) for _ in range(3)]
    assert len(set(map(lambda t: round(t, 6), plain))) == 1
    assert len(set(map(lambda t: round(t, 6), strided))) == 1
    assert strided[0] > plain[0] > 0
    before = sim.cann_sim_clock_ns(None)
    data.clone()
    torch.npu.synchronize()
    assert sim.cann_sim_clock_ns(None) > before


def test_exhausted_memory_is_torch_npus_own_error(sim):
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 40, dtype=torch.uint8, device=DEVICE)
    torch.npu.empty_cache()
    sim.cann_sim_fault(b"aclrtMalloc:1+:207001")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(100 << 20, dtype=torch.uint8, device=DEVICE)
    sim.cann_sim_fault(None)
    assert torch.empty(100 << 20, dtype=torch.uint8, device=DEVICE).numel() == 100 << 20


def test_memory_is_accounted_for(sim):
    torch.npu.empty_cache()
    free, total = torch.npu.mem_get_info()
    block = torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
    assert free - torch.npu.mem_get_info()[0] >= 64 << 20
    assert total - torch.npu.mem_get_info()[0] == sim.cann_sim_memory_used()
    del block
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info() == (free, total)


def test_a_fault_of_the_first_phase_is_raised_and_the_next_call_works(sim):
    view = torch.arange(24, device=DEVICE).view(4, 6).t()
    torch.npu.synchronize()
    sim.cann_sim_fault(b"aclnnInplaceCopyGetWorkspaceSize:1:161002")
    if os.environ.get("TASK_QUEUE_ENABLE") != "2":
        with pytest.raises(RuntimeError, match="161002"):
            view.contiguous()
        assert view.contiguous().cpu().shape == (6, 4)
        assert sim.cann_sim_calls(b"aclnnInplaceCopyGetWorkspaceSize") == 2


def test_a_fault_on_the_device_comes_out_of_synchronize_once(sim):
    view = torch.arange(24, device=DEVICE).view(4, 6).t()
    sim.cann_sim_fault(b"aclnnInplaceCopy.task:1:507035")
    with pytest.raises(RuntimeError, match="507035"):
        view.contiguous()
        torch.npu.synchronize()
    torch.npu.synchronize()
    assert view.contiguous().cpu().shape == (6, 4)


def test_a_fault_of_the_second_phase(sim):
    # With the task queue on, torch_npu gives the process up after this error, as it does on a device: hence without.
    result = run(
        """
        import torch
        view = torch.arange(24, device="npu:0").view(4, 6).t()
        try:
            view.contiguous(); print("no error")
        except RuntimeError as error:
            print("361001" in str(error))
        print(view.contiguous().cpu().sum().item())
        """,
        TASK_QUEUE_ENABLE="0",
        CANN_SIM_FAULT="aclnnInplaceCopy:1:361001",
    )
    assert result.stdout.split() == ["True", "276"], result.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"TASK_QUEUE_ENABLE": "0"},
        {"TASK_QUEUE_ENABLE": "2"},
        {"ASCEND_LAUNCH_BLOCKING": "1"},
        {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"},
    ],
    ids=lambda e: "=".join(*e.items()),
)
def test_ways_of_launching(environment):
    result = run(
        """
        import torch
        x = torch.arange(24., device="npu:0").view(4, 6)
        print((x.t().contiguous() @ x * 2).sum().item())
        """,
        **environment,
    )
    x = torch.arange(24.0).view(4, 6)
    assert result.stdout.split() == [str((x.t() @ x * 2).sum().item())], result.stderr


@pytest.mark.parametrize(
    ("soc", "version"),
    [("Ascend910B4", "8.5.0"), ("Ascend910_9392", "9.1.0.pre"), ("Ascend950PR_9599", "9.1.0")],
)
def test_each_chip_and_version(soc, version):
    result = run(
        """
        import torch
        print(torch.npu.get_device_name(0), torch.ones(3, 4, device="npu:0").t().contiguous().sum().item())
        from torch_npu.npu.utils import get_cann_version
        print(get_cann_version(module="CANN"))
        """,
        CANN_SIM_SOC=soc,
        CANN_SIM_VERSION=version,
    )
    assert result.stdout.split() == [soc, "12.0", version], result.stderr


@pytest.mark.parametrize(("name", "value"), [("CANN_SIM_SOC", "Ascend310"), ("CANN_SIM_VERSION", "7.0")])
def test_an_unknown_setting_ends_with_the_choices(name, value):
    result = run("import torch; torch.npu.is_available(); torch.zeros(1).npu()", **{name: value})
    assert result.returncode != 0
    assert f"{name}={value} is not simulated; use one of:" in result.stderr


def test_host_code_cannot_touch_device_memory():
    result = run(
        """
        import ctypes, torch
        x = torch.zeros(4, device="npu:0")
        torch.npu.synchronize()
        print(ctypes.string_at(x.data_ptr(), 4))
        """
    )
    assert result.returncode < 0 and not result.stdout
    assert "cann-sim: host code touched device memory at 0x" in result.stderr


def test_a_missing_operator_says_its_name():
    code = """
        import torch
        try:
            torch.linalg.qr(torch.eye(3, device="npu:0")); torch.npu.synchronize()
        except RuntimeError as error:
            print(error)
        """
    on_a2 = run(code, CANN_SIM_SOC="Ascend910B1", ASCEND_LAUNCH_BLOCKING="1")
    on_950 = run(code, CANN_SIM_SOC="Ascend950PR_9599")
    assert "qr" in on_a2.stdout.lower(), on_a2
    assert "aclnnLinalgQr" in on_950.stdout, on_950


def test_the_log_has_the_tasks_in_order(tmp_path):
    log = tmp_path / "tasks"
    run(
        """
        import torch
        x = torch.zeros(4, 6, device="npu:0")
        y = x.t().contiguous() + 1
        torch.npu.synchronize()
        """,
        CANN_SIM_LOG=str(log),
    )
    names = [line.split()[1] for line in log.read_text().splitlines() if "aclnn" in line]
    assert names == ["aclnnInplaceZero", "aclnnInplaceCopy", "aclnnAdds"]
    assert "f32[6, 4]/[1, 6]" in log.read_text()


def test_a_forked_child_uses_the_device():
    result = run(
        """
        import os, torch
        torch.npu.is_available()
        child = os.fork()
        print(torch.ones(3, device="npu:0").sum().item(), flush=True)
        if child:
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert result.stdout.split() == ["3.0", "3.0"], result.stderr
