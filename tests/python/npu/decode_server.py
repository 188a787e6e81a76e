"""A miniature server: prefill runs eagerly, decode steps replay one captured graph for each batch size.

As a script it decodes in the ways that are named and prints, as JSON, what came out of each:
`python decode_server.py STEPS WAY…`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace

import infini_rearrange as ir
import torch
import torch_npu
from decode_model import (
    BLOCK,
    BLOCKS,
    DEVICE,
    DTYPE,
    FIA,
    PAGES,
    POSITIONS,
    SLOTS,
    VERSIONS,
    Call,
    Model,
    Step,
    attend,
    attend_contiguous,
    lengths_name,
)
from torch_npu._C import _weak_ref_tensor

SIZES = (1, 2, 4)  # batch sizes with a graph
PROMPT = 5  # tokens of a prompt
SETTLED = 50  # steps until every batch size and prefill has been met
# What somebody else keeps in memory of the update stream while graphs are replayed: elements and their value.
BYSTANDER, BYSTANDER_VALUE = 8192, 7.0


class TaskGroups:
    """The calls of one graph in task groups made by hand; weak references of their tensors for the updates."""

    def __init__(self, prepare: Callable[[Call], Call] = lambda call: call):
        self._records: list[tuple] = []
        self._prepare = prepare

    def attend(self, call: Call) -> torch.Tensor:
        """Captures the call in a group of its own, behind a wait for the update."""
        packet, name = FIA[call.version]
        stream, event = torch.npu.current_stream(), torch.npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        args, kwargs = self._prepare(call).arguments()
        workspace = getattr(torch.ops.npu, f"_{name}_get_max_workspace")(*args, **kwargs)
        out = [torch.empty(args[0].shape, dtype=DTYPE, device=DEVICE), torch.empty(1, dtype=DTYPE, device=DEVICE)]
        weak = call.with_({name: _weak_ref_tensor(tensor) for name, tensor in call.tensors.items()}, [])
        torch.npu.graph_task_group_begin(stream)
        self._issue(call, workspace, out)
        handle = torch.npu.graph_task_group_end(stream)
        self._records.append((event, handle, weak, workspace, [_weak_ref_tensor(tensor) for tensor in out]))
        return out[0]

    def update(self, stream: torch.npu.Stream, lengths: list[int]) -> None:
        """Issues every call again with other lengths."""
        with torch.npu.stream(stream):
            for event, handle, weak, workspace, out in self._records:
                torch.npu.graph_task_update_begin(stream, handle)
                self._issue(weak.with_(weak.tensors, lengths), workspace, out)
                torch.npu.graph_task_update_end(stream)
                event.record(stream)

    def _issue(self, call: Call, workspace: torch.Tensor, out: list[torch.Tensor]) -> None:
        args, kwargs = self._prepare(call).arguments()
        FIA[call.version][0].out(*args, **kwargs, workspace=workspace, out=out)


class DispatchedGroups:
    """torch_npu's own: it opens the groups while capturing, and updates them with the graph."""

    attend = staticmethod(attend)

    def __init__(self, graph: torch.npu.NPUGraph):
        self._graph = graph

    def update(self, stream: torch.npu.Stream, lengths: list[int]) -> None:
        """Torch_npu has a stream of its own for updates, which `stream` must be."""
        self._graph.update(cpu_update_input=[{lengths_name(version): lengths} for version in VERSIONS])


@dataclass(frozen=True)
class Way:
    """How to decode: with or without graphs, and on how many streams."""

    groups: str = ""  # who makes the task groups: "hand", "dispatch", or nobody, without graphs
    two_streams: bool = False
    hooked: bool = True
    attend: Callable[[Call], torch.Tensor] = attend
    # What becomes of a call before it is issued inside a group made by hand.
    inside: Callable[[Call], Call] = lambda call: call
    # Whether memory that is not in use is given back after an update, instead of being used by somebody else.
    trims: bool = False


def contiguous_inside(call: Call) -> Call:
    """What servers did by hand: copies inside the group, to memory that is free again when the call returns."""
    return call.with_({name: tensor.contiguous() for name, tensor in call.tensors.items()}, call.lengths)


BY_HAND = Way("hand", hooked=False, attend=attend_contiguous, inside=contiguous_inside)
WAYS = {
    "reference": Way(hooked=False, attend=attend_contiguous),
    "eager": Way(),
    "eager_streams": Way(two_streams=True),
    "dispatch": Way("dispatch"),
    "dispatch_streams": Way("dispatch", two_streams=True),
    "groups": Way("hand"),
    "groups_streams": Way("hand", two_streams=True),
    "groups_trimmed": Way("hand", trims=True),
    "by_hand": BY_HAND,
    "by_hand_trimmed": replace(BY_HAND, trims=True),
}


class Captured:
    """The graph of one batch size and the tensors that it reads and writes."""

    def __init__(self, model: Model, size: int, way: Way, side, pool):
        self.numbers = torch.zeros(4, size, dtype=torch.int64, device=DEVICE)
        self.table = torch.zeros(size, PAGES, dtype=torch.int32, device=DEVICE)
        self.numbers[2].fill_(SLOTS * POSITIONS)  # what the first run writes belongs to nobody
        step = Step(0, size, 1, self.numbers, self.table, [1] * size)
        model.forward(step, way.attend, side)
        self.graph = torch.npu.NPUGraph()
        dispatch = way.groups == "dispatch"
        self.groups = DispatchedGroups(self.graph) if dispatch else TaskGroups(way.inside)
        with torch.npu.graph(self.graph, pool=pool, auto_dispatch_capture=dispatch):
            self.logits = model.forward(step, self.groups.attend, side)


@dataclass
class Slot:
    """A request: how many positions it has, how many it will have, its last token and its pages."""

    length: int = 0
    limit: int = 0
    token: int = 0
    pages: list[int] = field(default_factory=list)


class Server:
    """Slots 0 to n - 1 decode together, n changing from step to step; one that is done makes room for another."""

    def __init__(self, way: Way):
        self.way, self.model, self.random = way, Model(), random.Random(11)
        self.slots = [Slot() for _ in range(SLOTS)]
        self.free = list(range(1, BLOCKS))
        self.side = torch.npu.Stream() if way.two_streams else None
        self.update_stream = torch_npu.npu.graphs._GraphDispatchMode().update_stream
        self.updater = ThreadPoolExecutor(1)
        self.graphs: dict[int, Captured] = {}
        self.mask = torch.ones(PROMPT, POSITIONS, dtype=torch.bool).triu(1).view(1, 1, PROMPT, POSITIONS).to(DEVICE)
        self.prefills, self.decodes, self.overwritten, self.number = 0, Counter(), 0, 0

    def capture(self) -> None:
        """Captures the largest batch first: the others find room in its memory."""
        for size in reversed(SIZES):
            pool = next((captured.graph.pool() for captured in self.graphs.values()), None)
            self.graphs[size] = Captured(self.model, size, self.way, self.side, pool)

    def step(self) -> torch.Tensor:
        """One decode step; float logits [n, VOCABULARY] on the host."""
        batch = self.random.randint(1, SLOTS)
        for index, slot in enumerate(self.slots[:batch]):
            if slot.length >= slot.limit:
                self.prefill(index)
        logits = (self.replay if self.graphs else self.decode)(batch)
        for slot, token in zip(self.slots, logits.argmax(-1).tolist(), strict=False):
            slot.length, slot.token = slot.length + 1, token
        self.number += 1
        return logits

    def prefill(self, index: int) -> None:
        """A new request takes the slot, and other pages than the last one had."""
        slot = self.slots[index]
        self.free += slot.pages
        slot.pages = [self.free.pop(0) for _ in range(PAGES)]
        slot.length, slot.limit = PROMPT, self.random.randint(PROMPT + 2, POSITIONS)
        places = range(PROMPT)
        numbers = [[self.random.randrange(32) for _ in places], list(places)]
        numbers += [[index * POSITIONS + at for at in places], [slot.pages[0] * BLOCK + at for at in places]]
        step = Step(index, 1, PROMPT, *on_device(numbers, [slot.pages]), [PROMPT], self.mask)
        slot.token = int(self.model.forward(step, self.way.attend, self.side)[-1].argmax())
        self.prefills += 1

    def inputs(self, batch: int, size: int) -> tuple[list[list[int]], list[list[int]], list[int]]:
        """The numbers, pages and lengths of a step, padded with sequences of one position that belong to nobody."""
        rows, padding = [], size - batch
        for index, slot in enumerate(self.slots[:batch]):
            page, offset = divmod(slot.length, BLOCK)
            rows.append([slot.token, slot.length, index * POSITIONS + slot.length, slot.pages[page] * BLOCK + offset])
        rows += [[0, 0, SLOTS * POSITIONS, 0]] * padding
        pages = [slot.pages for slot in self.slots[:batch]] + [[0] * PAGES] * padding
        lengths = [slot.length + 1 for slot in self.slots[:batch]] + [1] * padding
        return [list(column) for column in zip(*rows, strict=True)], pages, lengths

    def decode(self, batch: int) -> torch.Tensor:
        """Without a graph."""
        numbers, pages, lengths = self.inputs(batch, batch)
        step = Step(0, batch, 1, *on_device(numbers, pages), lengths)
        self.decodes[batch] += 1
        return self.model.forward(step, self.way.attend, self.side).cpu().float()

    def replay(self, batch: int) -> torch.Tensor:
        """With the graph of the next batch size that has one."""
        size = next(size for size in SIZES if size >= batch)
        numbers, pages, lengths = self.inputs(batch, size)
        captured = self.graphs[size]
        captured.numbers.copy_(torch.tensor(numbers))
        captured.table.copy_(torch.tensor(pages, dtype=torch.int32))
        # Servers update before the replay, behind it, or at the same time from another thread.
        if self.number % 3 == 0:
            bystander = self.update(captured, lengths)
            captured.graph.replay()
        elif self.number % 3 == 1:
            captured.graph.replay()
            bystander = self.update(captured, lengths)
        else:
            pending = self.updater.submit(self.update, captured, lengths)
            captured.graph.replay()
            bystander = pending.result()
        self.decodes[size] += 1
        logits = captured.logits.cpu()[:batch].float()
        self.overwritten += int((bystander.cpu() != BYSTANDER_VALUE).any())
        return logits

    @torch.inference_mode()
    def update(self, captured: Captured, lengths: list[int]) -> torch.Tensor:
        """Sets the lengths. Returns what takes the memory that the update has freed, if it has freed any."""
        captured.groups.update(self.update_stream, lengths)
        if self.way.trims:
            torch.npu.synchronize()
            torch.npu.empty_cache()
            return torch.full((1,), BYSTANDER_VALUE)
        with torch.npu.stream(self.update_stream):
            bystander = torch.full((BYSTANDER,), BYSTANDER_VALUE, dtype=DTYPE, device=DEVICE)
        if self.number % 3 == 0:
            self.update_stream.synchronize()
        return bystander

    def close(self) -> None:
        """Nothing of the server is left on the device."""
        torch.npu.synchronize()
        self.updater.shutdown()
        for captured in self.graphs.values():
            captured.graph.reset()
        self.graphs.clear()


def on_device(numbers: list[list[int]], pages: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(numbers).to(DEVICE), torch.tensor(pages, dtype=torch.int32).to(DEVICE)


@dataclass
class Outcome:
    """What came out of decoding in one way. Memory in bytes; all of it and what is in use, early and at the end."""

    error: str = ""
    mismatched: list[int] = field(default_factory=list)  # steps whose logits are not those of the reference, bit by bit
    decodes: dict[str, int] = field(default_factory=dict)  # steps of each batch size, with the padding
    prefills: int = 0
    overwritten: int = 0  # steps in which a bystander's memory was written
    pool: list[list[int]] = field(default_factory=list)  # of the graphs, from their capture on
    device: list[list[int]] = field(default_factory=list)  # from when every size has been met
    left: int = 0  # allocated after the server has gone, over what was before
    live: list[int] = field(default_factory=list)  # graphs before, with, and after the server
    graphs: dict = field(default_factory=dict)
    sites: dict[str, dict] = field(default_factory=dict)
    hidden: list[int] = field(default_factory=list)  # copies and bytes, as the device counts them


class Simulation:
    """What the simulated device says of itself."""

    def __init__(self):
        self._library = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])

    def __call__(self, name: str) -> int:
        function = self._library[f"cann_sim_{name}"]
        function.restype = ctypes.c_uint64
        torch.npu.synchronize()
        return function()


def pool_bytes() -> list[int]:
    """Bytes that the private pools of graphs have, and those of them in use."""
    segments = [one for one in torch.npu.memory_snapshot() if tuple(one["segment_pool_id"]) != (0, 0)]
    return [sum(one[key] for one in segments) for key in ("total_size", "allocated_size")]


@torch.inference_mode()
def run(way: Way, steps: int, reference: list[torch.Tensor] | None = None) -> tuple[Outcome, list[torch.Tensor]]:
    """Decodes so many steps. Returns the outcome against a reference, and the logits of each step."""
    outcome, logits, simulation = Outcome(), [], Simulation()
    (ir.install if way.hooked else ir.uninstall)()
    gc.collect()
    allocated, outcome.live = torch.npu.memory_allocated(), [ir.profile()["graphs"]["live"]]
    server = Server(way)
    try:
        ir.reset_profile()
        if way.groups:
            server.capture()
        outcome.live.append(ir.profile()["graphs"]["live"])
        outcome.pool = [pool_bytes()]
        simulation("reset")
        for number in range(steps):
            logits.append(server.step())
            if reference is not None and not torch.equal(logits[-1], reference[number]):
                outcome.mismatched.append(number)
            if number == min(SETTLED, steps // 2):
                outcome.device = [[simulation("memory_used"), torch.npu.memory_allocated()]]
        outcome.pool.append(pool_bytes())
        outcome.device.append([simulation("memory_used"), torch.npu.memory_allocated()])
        outcome.hidden = [simulation("hidden_copies"), simulation("hidden_copy_bytes")]
        profile = ir.profile()
        outcome.graphs = profile["graphs"]
        outcome.sites = {one["site"]: {k: v for k, v in one.items() if type(v) is int} for one in profile["sites"]}
    except Exception:
        outcome.error = traceback.format_exc()
    outcome.decodes, outcome.prefills = {str(size): count for size, count in server.decodes.items()}, server.prefills
    outcome.overwritten = server.overwritten
    server.close()
    del server
    gc.collect()
    outcome.left = torch.npu.memory_allocated() - allocated
    outcome.live.append(ir.profile()["graphs"]["live"])
    ir.uninstall()
    return outcome, logits


def main(steps: int, names: list[str]) -> None:
    _, reference = run(WAYS["reference"], steps)
    print(json.dumps({name: asdict(run(WAYS[name], steps, reference)[0]) for name in names}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
