"""NPUGraph of the unmodified torch_npu over the simulated CANN: capture, replay, memory. Run with
`tests/cann-sim/run .venv/bin/python -m pytest tests/python/sim/test_sim_capture.py`; the last test runs this file once
more without torch_npu's task queue.
"""

import ctypes
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if "CANN_SIM_LIBRARY" not in os.environ:
    pytest.skip("needs tests/cann-sim/run", allow_module_level=True)

POISON = 0xCB


@pytest.fixture
def sim():
    library = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
    for function in ("replays", "capturing", "graph_tasks", "memory_used", "calls", "clock_ns", "hidden_copies"):
        getattr(library, f"cann_sim_{function}").restype = ctypes.c_uint64
    library.cann_sim_graph_tasks.argtypes = library.cann_sim_clock_ns.argtypes = [ctypes.c_void_p]
    library.cann_sim_poison.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    torch.npu.synchronize()
    library.cann_sim_reset()
    yield library
    library.cann_sim_fault(None)


def capture(function, **options):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options):
        result = function()
    return graph, result


def fill(tensor, value):
    tensor.fill_(value)
    torch.npu.synchronize()


def replay(graph):
    graph.replay()
    torch.npu.synchronize()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_chain_is_replayed_on_whatever_its_input_holds(sim, mode):
    x = torch.ones(3, 4, device="npu")
    before = sim.cann_sim_replays()
    graph, y = capture(lambda: ((x + 1) * 2).t().contiguous(), capture_error_mode=mode)
    assert sim.cann_sim_graph_tasks(None) == 3
    for value in (5, -2):
        fill(x, value)
        replay(graph)
        assert torch.equal(y.cpu(), torch.full((4, 3), (value + 1) * 2.0))
    assert sim.cann_sim_replays() == before + 2


def test_nothing_runs_while_capturing(sim):
    x = torch.zeros(8, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        assert torch.npu.is_current_stream_capturing()
        assert sim.cann_sim_capturing() == 1
        x.add_(1)
    assert not torch.npu.is_current_stream_capturing()
    assert sim.cann_sim_capturing() == 0
    torch.npu.synchronize()
    assert x.sum().item() == 0
    replay(graph)
    replay(graph)
    assert x.cpu().tolist() == [2.0] * 8


def test_a_graph_is_replayed_on_the_current_stream_in_its_order():
    x = torch.zeros(8, device="npu")
    graph, y = capture(lambda: x * 2)
    other = torch.npu.Stream()
    torch.npu.synchronize()
    with torch.npu.stream(other):
        results = []
        for value in (1, 2, 3):
            x.fill_(value)
            graph.replay()
            results.append(y.clone())
    other.synchronize()
    assert [r.cpu()[0].item() for r in results] == [2.0, 4.0, 6.0]


def test_other_streams_fork_off_and_are_joined():
    x = torch.zeros(4, device="npu")
    side, third = torch.npu.Stream(), torch.npu.Stream()

    def work():
        main = torch.npu.current_stream()
        start = x + 1
        side.wait_stream(main)
        with torch.npu.stream(side):
            left = start * 10
            third.wait_stream(side)
            with torch.npu.stream(third):
                far = left + 1000
            side.wait_stream(third)
        right = start * 100
        main.wait_stream(side)
        return left + right + far

    graph, y = capture(work)
    for value in (0, 4):
        fill(x, value)
        replay(graph)
        assert y.cpu().tolist() == [(value + 1) * 120.0 + 1000] * 4


def test_pinned_memory_is_copied_with_each_replay():
    x, pinned, back = torch.zeros(4, device="npu"), torch.zeros(4).pin_memory(), torch.zeros(4).pin_memory()

    def work():
        x.copy_(pinned, non_blocking=True)
        back.copy_(x + 1, non_blocking=True)

    graph, _ = capture(work)
    for value in (3.0, 8.0):
        pinned.fill_(value)
        replay(graph)
        assert back.tolist() == [value + 1] * 4


def test_the_simulated_clock_goes_on_with_each_replay(sim):
    x = torch.zeros(1 << 20, device="npu")
    graph, _ = capture(lambda: (x + 1) * 2)
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    times = []
    for replays in (1, 3):
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    assert times[0] > 0
    assert times[1] == pytest.approx(3 * times[0], rel=1e-3)


def test_two_graphs_take_turns_and_share_a_pool():
    x = torch.zeros(1024, device="npu")
    first, y = capture(lambda: x + 1)
    second, z = capture(lambda: y * 2, pool=first.pool())
    assert first.pool() == second.pool()
    for value in (1, 2):
        fill(x, value)
        replay(first)
        replay(second)
        assert z.cpu()[0].item() == (value + 1) * 2
    first.reset()
    fill(y, 7)
    replay(second)
    assert z.cpu()[0].item() == 14


def test_a_graph_keeps_the_memory_of_tensors_that_are_gone(sim):
    x = torch.ones(1 << 18, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        hidden = x + 1
        y = hidden * 2
        del hidden
    torch.npu.empty_cache()
    # Tensors made now must not lie where the graph writes.
    others = [torch.full((1 << 18,), 5.0, device="npu") for _ in range(8)]
    replay(graph)
    assert y.cpu()[0].item() == 4
    assert all(torch.equal(t.cpu(), torch.full((1 << 18,), 5.0)) for t in others)


def test_the_pool_goes_back_when_the_graph_is_reset(sim):
    x = torch.ones(4 << 20, device="npu")
    torch.npu.empty_cache()
    before = sim.cann_sim_memory_used()
    graph, y = capture(lambda: (x + 1) * 2)
    with_graph = sim.cann_sim_memory_used()
    assert with_graph >= before + x.numel() * 4
    del y
    torch.npu.empty_cache()
    assert sim.cann_sim_memory_used() == with_graph
    graph.reset()
    torch.npu.empty_cache()
    # The random generator keeps a small segment for its numbers as long as the graph object lives.
    assert sim.cann_sim_memory_used() <= before + (2 << 20)
    del graph
    torch.npu.empty_cache()
    assert sim.cann_sim_memory_used() == before


def test_a_captured_address_is_read_again_even_if_its_tensor_is_gone(sim):
    x = torch.ones(1 << 10, dtype=torch.uint8, device="npu")
    address, size = x.data_ptr(), x.numel()
    graph, y = capture(lambda x=x: x + 0)
    replay(graph)
    assert y.cpu()[0].item() == 1
    # The caching allocator keeps the memory, so that only its contents tell.
    del x
    assert sim.cann_sim_poison(address, size) == 0
    replay(graph)
    assert y.cpu().tolist() == [POISON] * size


def test_a_replay_after_the_memory_went_back_to_the_device_fails():
    code = """
        import torch
        # A segment of its own: large enough to be freed alone.
        x = torch.ones(64 << 20, dtype=torch.uint8, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x + 0
        graph.replay(); torch.npu.synchronize()
        del x
        torch.npu.empty_cache()
        graph.replay()
        try:
            torch.npu.synchronize()
        except RuntimeError as error:
            print("refused", "507899" in str(error), "live allocation" in str(error))
    """
    assert run(code).stdout.split()[-3:] == ["refused", "True", "True"]


def run(code, **environment):
    lines = code.splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    command = [sys.executable, "-c", "\n".join(line[indent:] for line in lines)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_hidden_copies_count_with_each_replay(sim):
    """FIA of CANN 9.1.0.pre and before copies strided inputs by itself; here it stands for any operator that does."""
    if os.environ.get("CANN_SIM_SOC", "Ascend910B1") != "Ascend910B1" or "9.1.0.pre" in os.environ.get(
        "CANN_SIM_VERSION", ""
    ):
        pytest.skip("FIA copies by itself only on the default platform")
    query = torch.randn(4, 2, 128, dtype=torch.float16, device="npu")[..., :64]
    key = torch.randn(4, 2, 64, dtype=torch.float16, device="npu")
    value = torch.randn(4, 2, 128, dtype=torch.float16, device="npu")[..., :64]

    def work():
        return torch.ops.npu.npu_fused_infer_attention_score(
            query,
            key,
            value,
            num_heads=2,
            input_layout="TND",
            actual_seq_lengths=[4],
            actual_seq_lengths_kv=[4],
        )

    work()
    torch.npu.synchronize()
    eager = sim.cann_sim_hidden_copies()
    assert eager > 0
    graph, _ = capture(work)
    assert sim.cann_sim_hidden_copies() == eager
    replay(graph)
    replay(graph)
    assert sim.cann_sim_hidden_copies() == 3 * eager


def test_a_fault_of_a_task_hits_its_replay():
    code = """
        import ctypes, os, torch
        sim = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
        x = torch.ones(4, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x * 3
        sim.cann_sim_fault(b"aclnnMuls.task:1:507035")
        graph.replay()
        try:
            torch.npu.synchronize()
        except RuntimeError as error:
            print("failed", "507035" in str(error))
        graph.replay(); torch.npu.synchronize()
        print(y.cpu().tolist())
    """
    assert run(code).stdout.splitlines()[-2:] == ["failed True", "[3.0, 3.0, 3.0, 3.0]"]


def test_a_graph_is_dumped_as_json(tmp_path):
    x = torch.ones(2, 3, device="npu")
    graph, _ = capture(lambda: (x + 1).t().contiguous())
    graph.debug_dump(str(tmp_path / "graph.json"))
    dumped = json.loads((tmp_path / "graph.json").read_text())
    names = [node["what"].split()[0] for node in dumped["nodes"]]
    assert names == ["aclnnAdds", "aclnnInplaceCopy"]


def test_graphed_callables_work():
    layer = torch.nn.Linear(8, 4, bias=False).npu().requires_grad_(False)
    sample = torch.zeros(2, 8, device="npu")
    graphed = torch.npu.make_graphed_callables(lambda x: layer(x) + 1, (sample,))
    x = torch.randn(2, 8)
    expected = x @ layer.weight.cpu().t() + 1
    torch.testing.assert_close(graphed(x.npu()).cpu(), expected, atol=1e-3, rtol=1e-3)


def test_the_log_tells_of_captures(tmp_path):
    log = tmp_path / "log"
    code = """
        import torch
        x = torch.ones(4, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x * 3
        graph.replay(); torch.npu.synchronize()
    """
    run(code, CANN_SIM_LOG=str(log))
    lines = log.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("capture begin graph=1"))
    rest = "\n".join(lines[start:])
    for expected in ("capture end graph=1 tasks=1", "execute graph=1", "replay graph=1 tasks=1", "aclnnMuls"):
        assert expected in rest


def test_the_rest_of_this_file_without_a_task_queue():
    if os.environ.get("TASK_QUEUE_ENABLE") == "0":
        pytest.skip("this is that run")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    environment = {**os.environ, "TASK_QUEUE_ENABLE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:]
