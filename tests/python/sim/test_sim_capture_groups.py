"""Task groups and their updates, as SGLang (auto_dispatch_capture) and vLLM-Ascend (by hand) use them: run with
`tests/cann-sim/run .venv/bin/python -m pytest tests/python/sim/test_sim_capture_groups.py`.
"""

import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")
if "CANN_SIM_LIBRARY" not in os.environ:
    pytest.skip("needs tests/cann-sim/run", allow_module_level=True)
torch_npu = pytest.importorskip("torch_npu")

HEADS, WIDTH, TOKENS = 2, 64, 8


def options(lengths):
    return {
        "num_heads": HEADS,
        "num_key_value_heads": HEADS,
        "scale": 0.125,
        "input_layout": "TND",
        "actual_seq_lengths": lengths,
        "actual_seq_lengths_kv": lengths,
    }


def lengths_of(first):
    return {"actual_seq_lengths": [first, TOKENS], "actual_seq_lengths_kv": [first, TOKENS]}


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    return [torch.randn(TOKENS, HEADS, WIDTH, dtype=torch.float16).npu() for _ in range(3)]


def fia(inputs, first):
    return torch.ops.npu.npu_fused_infer_attention_score(*inputs, **options([first, TOKENS]))[0]


def auto(inputs, layers=1):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        results = [fia(inputs, 3) for _ in range(layers)]
    return graph, results


@pytest.mark.parametrize("update_first", [True, False])
def test_lengths_are_updated_before_or_after_the_replay(inputs, update_first):
    eager = {first: fia(inputs, first).cpu() for first in (3, 5, 6)}
    assert not torch.equal(eager[3], eager[5])
    graph, (out,) = auto(inputs)
    for first in (5, 3, 6):
        steps = [lambda first=first: graph.update(cpu_update_input=[lengths_of(first)]), graph.replay]
        for step in steps if update_first else reversed(steps):
            step()
        torch.npu.synchronize()
        assert torch.equal(out.cpu(), eager[first])


def test_each_layer_has_a_group_of_its_own(inputs):
    graph, outs = auto(inputs, layers=3)
    graph.update(cpu_update_input=[lengths_of(first) for first in (2, 5, 7)])
    graph.replay()
    torch.npu.synchronize()
    for out, first in zip(outs, (2, 5, 7), strict=True):
        assert torch.equal(out.cpu(), fia(inputs, first).cpu())


def test_new_contents_are_read_at_the_old_addresses(inputs):
    graph, (out,) = auto(inputs)
    inputs[0].copy_(torch.randn(TOKENS, HEADS, WIDTH, dtype=torch.float16).npu())
    graph.update(cpu_update_input=[lengths_of(4)])
    graph.replay()
    torch.npu.synchronize()
    assert torch.equal(out.cpu(), fia(inputs, 4).cpu())


class ByHand:
    """A graph as vLLM-Ascend makes it: external event, group, the operator's out form on weak references."""

    def __init__(self, inputs, calls=1):
        self.stream, self.updating = torch.npu.Stream(), torch.npu.Stream()
        workspace = torch.ops.npu._npu_fused_infer_attention_score_get_max_workspace(*inputs, **options([3, TOKENS]))
        self.outs = [torch.empty_like(inputs[0]) for _ in range(calls)]
        self.lse = torch.empty(1, dtype=torch.float16, device="npu")
        self.weak = [torch_npu._C._weak_ref_tensor(t) for t in inputs]
        self.workspace = workspace
        self.graph, self.event = torch.npu.NPUGraph(), torch.npu.ExternalEvent()
        with torch.npu.graph(self.graph, stream=self.stream):
            self.event.wait(self.stream)
            self.event.reset(self.stream)
            torch.npu.graph_task_group_begin(self.stream)
            for out in self.outs:
                self.launch(3, out)
            self.handle = torch.npu.graph_task_group_end(self.stream)

    def launch(self, first, out):
        torch.ops.npu.npu_fused_infer_attention_score.out(
            *self.weak, workspace=self.workspace, out=[out, self.lse], **options([first, TOKENS])
        )

    def update(self, launches):
        with torch.npu.stream(self.updating):
            torch.npu.graph_task_update_begin(self.updating, self.handle)
            try:
                launches()
            finally:
                torch.npu.graph_task_update_end(self.updating)

    def run(self):
        self.event.record(self.updating)
        self.graph.replay()
        torch.npu.synchronize()
        return [out.cpu() for out in self.outs]


def test_a_group_made_by_hand_is_updated(inputs):
    made = ByHand(inputs, calls=2)
    for firsts in ((5, 6), (2, 7)):
        made.update(lambda firsts=firsts: [made.launch(f, out) for f, out in zip(firsts, made.outs, strict=True)])
        found = made.run()
        for out, first in zip(found, firsts, strict=True):
            assert torch.equal(out, fia(inputs, first).cpu())


@pytest.mark.parametrize("wrong", ["fewer", "more", "another", "none"])
def test_an_update_of_other_number_or_kind_is_refused_and_changes_nothing(inputs, wrong):
    made = ByHand(inputs, calls=2)
    first, second = made.outs
    launches = {
        "none": lambda: None,
        "fewer": lambda: made.launch(5, first),
        "more": lambda: [made.launch(5, out) for out in (first, second, first)],
        "another": lambda: (made.launch(5, first), second.add_(1)),
    }
    with pytest.raises(RuntimeError, match="107040"):
        made.update(launches[wrong])
    expected = fia(inputs, 3).cpu()
    assert all(torch.equal(out, expected) for out in made.run())
    made.update(lambda: [made.launch(6, out) for out in made.outs])
    assert torch.equal(made.run()[1], fia(inputs, 6).cpu())


def test_a_handle_is_stale_once_its_graph_is_reset(inputs):
    made = ByHand(inputs)
    made.graph.reset()
    with pytest.raises(RuntimeError, match="107017"):
        torch.npu.graph_task_update_begin(made.updating, made.handle)


def test_a_group_outside_of_a_capture_is_refused():
    stream = torch.npu.Stream()
    with pytest.raises(RuntimeError, match="107029"):
        torch.npu.graph_task_group_begin(stream)
    with pytest.raises(RuntimeError, match="107033"):
        torch.npu.graph_task_update_end(stream)


def run(code, **environment):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_replay_without_an_update_fails_instead_of_hanging():
    code = """
        import torch
        q, k, v = (torch.randn(8, 2, 64, dtype=torch.float16).npu() for _ in range(3))
        graph = torch.npu.NPUGraph()
        lengths = dict(actual_seq_lengths=[3, 8], actual_seq_lengths_kv=[3, 8])
        fia = torch.ops.npu.npu_fused_infer_attention_score
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            out = fia(q, k, v, num_heads=2, input_layout="TND", **lengths)[0]
        graph.update(cpu_update_input=[lengths])
        graph.replay(); torch.npu.synchronize()
        print("updated")
        graph.replay()
        try:
            torch.npu.synchronize()
        except RuntimeError as error:
            print("107019" in str(error), "CANN_SIM_TIMEOUT" in str(error))
    """
    assert run(code, CANN_SIM_TIMEOUT="0.5")[-2:] == ["updated", "True True"]


def test_a_copy_into_the_group_is_refused():
    code = """
        import torch
        x, y = torch.ones(8, device="npu"), torch.zeros(8).pin_memory()
        stream = torch.npu.Stream()
        with torch.npu.stream(stream):
            graph = torch.npu.NPUGraph()
            graph.capture_begin()
            torch.npu.graph_task_group_begin(stream)
            x.add_(1)
            codes = []
            for step in (
                lambda: x.copy_(y, non_blocking=True),
                lambda: torch.npu.graph_task_group_end(stream),
                graph.capture_end,
            ):
                try:
                    step()
                except RuntimeError as error:
                    codes.append(str(error).split("error code is ")[1][:6])
        print(*codes)
    """
    assert run(code, TASK_QUEUE_ENABLE="0")[-1] == "107033 107033 507903"


def test_the_rest_of_this_file_without_a_task_queue():
    if os.environ.get("TASK_QUEUE_ENABLE") == "0":
        pytest.skip("this is that run")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    environment = {**os.environ, "TASK_QUEUE_ENABLE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:]
