"""Graph captures as servers make them, and what the simulation tells about them without being waited for."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import attention_cases as attention
import strided
import torch
import torch_npu

DEVICE = "npu:0"
LIBRARY = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
for _name in ("calls", "replays", "capturing", "graph_tasks"):
    getattr(LIBRARY, f"cann_sim_{_name}").restype = ctypes.c_uint64

SITE = "npu_fused_infer_attention_score"
COPY = "aclnnInplaceCopy"
# Of these the newer releases make no copy by themselves; the others are copied by the operator in every release.
OWN = ("key", "value", "key_rope")
# In turn over the arguments, so that a call with all of them has all kinds.
KINDS = {
    "query": strided.wider_rows,
    "key": strided.wider_rows,
    "value": strided.every_other,
    "query_rope": strided.transposed,
    "key_rope": strided.expand,
    "atten_mask": strided.transposed,
    "block_table": strided.every_other,
}
# What a server changes between replays, in the names of version 1.
LENGTHS = {
    "mla_tnd": [{"actual_seq_lengths": ends, "actual_seq_lengths_kv": ends} for ends in ([10, 24], [15, 24])],
    "bsh": [{"actual_seq_lengths_kv": lengths} for lengths in ([20, 20], [7, 13])],
    "paged": [{"actual_seq_lengths_kv": lengths} for lengths in ([150, 70, 256], [90, 128, 200])],
}


def calls(*functions: str) -> int:
    """How often any of the functions was called; waits for nothing, unlike the fixture."""
    return sum(LIBRARY.cann_sim_calls(function.encode()) for function in functions)


def capturing() -> int:
    """Captures under way on the simulated device."""
    return LIBRARY.cann_sim_capturing()


def tasks(graph) -> list[tuple[str, str]]:
    """Kind ("task", or "group" inside a task group) and operator of what a replay runs, in order; no events."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch_npu warns of every dump
        path = Path(folder) / "graph.json"
        graph.debug_dump(str(path))
        nodes = json.loads(path.read_text())["nodes"]
    found = []
    for node in nodes:
        if node["kind"] in ("task", "group"):
            found += [(node["kind"], what.split()[0]) for what in node["what"].split("; ")]
    return found


def capture(function: Callable, **options):
    """Captures one call; the graph and the result."""
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options):
        result = function()
    return graph, result


def replayed(graph) -> None:
    graph.replay()
    torch.npu.synchronize()


def refill(tensors: dict[str, torch.Tensor], seed: int) -> None:
    """New values in the whole storages of the floating-point tensors, in place."""
    generator = torch.Generator().manual_seed(1000 + seed)
    for tensor in tensors.values():
        if tensor.is_floating_point():
            whole = torch.as_strided(tensor, (tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
            whole.copy_(torch.randn(whole.shape, generator=generator).to(tensor.dtype))


def litter() -> None:
    """What was freed is given back or taken by others, who write into it: not a number, wherever it is read."""
    gc.collect()
    torch.npu.empty_cache()
    for elements in (1 << 6, 1 << 10, 1 << 13, 1 << 16, 1 << 20):
        for _ in range(8):
            torch.full((elements,), float("nan"), device=DEVICE)
    torch.npu.synchronize()


@dataclass
class Step:
    """An attention call of a server: strided tensors, and two lengths to change between."""

    scenario: attention.Scenario
    operator: attention.Operator
    tensors: attention.Tensors
    names: list[str]  # of the strided ones

    @staticmethod
    def of(scenario: str, argument: str, operator: str = "v1") -> Step:
        """One argument strided, or "all" that may be, "own": key, value and key_rope, or "none"."""
        made = attention.SCENARIOS[scenario]
        tensors = made.make()
        names = {
            "all": [name for name in tensors if not (scenario == "paged" and name in OWN)],
            "own": [name for name in tensors if name in OWN],
            "none": [],
        }.get(argument, [argument])
        tensors |= {name: KINDS[name](tensors[name]) for name in names}
        assert not any(tensors[name].is_contiguous() for name in names)
        return Step(made, attention.OPERATORS[operator], tensors, names)

    @property
    def lengths(self) -> list[dict]:
        """In the names of the operator."""
        return [self.operator.options(lengths) for lengths in LENGTHS[self.scenario.name]]

    def call(self, turn: int = 0, into=None) -> torch.Tensor:
        return self.operator(self.tensors, self.scenario.options | LENGTHS[self.scenario.name][turn], into)

    def expected(self, turn: int) -> torch.Tensor:
        """On the host: what an eager call gives for contiguous tensors."""
        dense = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        options = self.scenario.options | LENGTHS[self.scenario.name][turn]
        return attention.Operator(self.operator.version, False)(dense, options).cpu()

    def copied(self, platform_copies: bool) -> list[str]:
        """The strided arguments that we copy; the operator copies the other strided ones."""
        return [name for name in self.names if name in OWN and not platform_copies]

    def strided_results(self) -> list[torch.Tensor]:
        """`out` tensors in a layout of their own, with values that no result has."""
        target = strided.transposed(torch.full_like(self.tensors["query"], 77))
        return [target, torch.empty(1, dtype=target.dtype, device=DEVICE)]


def weak(value):
    """What servers keep of captured tensors: references that own no memory."""
    if isinstance(value, dict):
        return {name: weak(one) for name, one in value.items()}
    if isinstance(value, list):
        return [weak(one) for one in value]
    return torch_npu._C._weak_ref_tensor(value)


@dataclass
class Groups:
    """Task groups made by hand, as vLLM-Ascend makes them: the operator again, on weak references, updates them."""

    graph: object = field(default_factory=lambda: torch.npu.NPUGraph())
    stream: object = field(default_factory=lambda: torch.npu.Stream())
    handles: list = field(default_factory=list)
    events: list = field(default_factory=list)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """While capturing: what is called in here forms a group."""
        stream = torch.npu.current_stream()
        event = torch.npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        try:
            yield
        finally:
            handle = torch.npu.graph_task_group_end(stream)
        self.handles.append(handle)
        self.events.append(event)

    @contextlib.contextmanager
    def update(self, number: int = 0) -> Iterator[None]:
        """What is called in here takes the place of what the group holds."""
        with torch.npu.stream(self.stream):
            torch.npu.graph_task_update_begin(self.stream, self.handles[number])
            try:
                yield
            except BaseException:
                with contextlib.suppress(RuntimeError):  # it misses what was to be updated
                    torch.npu.graph_task_update_end(self.stream)
                raise
            torch.npu.graph_task_update_end(self.stream)
            self.events[number].record(self.stream)

    def replay(self) -> None:
        self.graph.replay()
        torch.npu.synchronize()


@dataclass
class Attention:
    """One captured `.out` call of fused attention in a group of its own, and how to update it."""

    step: Step
    groups: Groups
    into: list[torch.Tensor]
    number: int = 0
    arguments: dict = field(default_factory=dict)

    @staticmethod
    def prepare(step: Step, into=None, groups: Groups | None = None) -> Attention:
        """Before the capture."""
        query = step.tensors["query"]
        into = into or [torch.empty_like(query.contiguous()), torch.empty(1, dtype=query.dtype, device=DEVICE)]
        return Attention(step, groups or Groups(), into)

    @property
    def packet(self):
        return getattr(torch.ops.npu, self.step.operator.site)

    def options(self, turn: int) -> dict:
        return self.step.operator.options(self.step.scenario.options | LENGTHS[self.step.scenario.name][turn])

    def issue(self) -> None:
        """While capturing."""
        workspace = self.step.operator.max_workspace(
            self.step.tensors, self.step.scenario.options | LENGTHS[self.step.scenario.name][0]
        )
        self.number = len(self.groups.handles)
        with self.groups.group():
            self.packet.out(**self.step.tensors, **self.options(0), workspace=workspace, out=self.into)
        self.arguments = {**weak(self.step.tensors), "workspace": weak(workspace), "out": weak(self.into)}

    def capture(self, **options) -> Attention:
        with torch.npu.graph(self.groups.graph, **options):
            self.issue()
        return self

    def update(self, turn: int, **changed) -> None:
        with self.groups.update(self.number):
            self.packet.out(**{**self.arguments, **changed}, **self.options(turn))

    def check(self, turn: int) -> None:
        """Updates, replays, and compares with an eager call."""
        self.update(turn)
        self.groups.replay()
        assert torch.equal(self.into[0].cpu(), self.step.expected(turn))
