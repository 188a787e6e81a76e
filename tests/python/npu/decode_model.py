"""A miniature model that decodes with fused attention, with strided inputs where servers have them.

Two branches of two layers each, so that they can run on two streams: grouped-query attention (over pages, and over a
fused key and value cache) and latent attention (one row for key, value and rope; and expanded, with one rope for all
heads).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

DEVICE, DTYPE = "npu:0", torch.bfloat16
SLOTS, POSITIONS = 4, 32  # requests at once, positions of each
BLOCK, BLOCKS = 16, 12  # positions of a page, pages; page 0 takes what padding writes
PAGES = POSITIONS // BLOCK
HIDDEN, VOCABULARY, HEADS, WIDTH, LATENT, ROPE = 16, 32, 2, 64, 128, 64

Tensors = dict[str, torch.Tensor]
FIA = {
    1: (torch.ops.npu.npu_fused_infer_attention_score, "npu_fused_infer_attention_score"),
    2: (torch.ops.npu.npu_fused_infer_attention_score_v2, "npu_fused_infer_attention_score_v2"),
}
# The names of the options in the two versions of the operator.
OPTIONS = {
    1: ("num_heads", "num_key_value_heads", "scale", "actual_seq_lengths_kv"),
    2: ("num_query_heads", "num_key_value_heads", "softmax_scale", "actual_seq_kvlen"),
}
# The versions that a forward pass calls, in this order.
VERSIONS = (1, 2, 1, 2)


def lengths_name(version: int) -> str:
    """What the lengths of the keys are called."""
    return OPTIONS[version][3]


@dataclass(frozen=True)
class Call:
    """One call of fused attention: its tensors, its options but for the lengths, and the lengths of the keys."""

    version: int
    tensors: Tensors
    options: dict
    lengths: list[int]

    def arguments(self) -> tuple[list[torch.Tensor], dict]:
        # torch_npu's graph handlers look for query, key and value by position.
        tensors = dict(self.tensors)
        first = [tensors.pop(name) for name in ("query", "key", "value")]
        return first, tensors | self.options | {lengths_name(self.version): self.lengths}

    def with_(self, tensors: Tensors, lengths: list[int]) -> Call:
        return Call(self.version, tensors, self.options, lengths)


Attend = Callable[[Call], torch.Tensor]


def attend(call: Call) -> torch.Tensor:
    """Hands the views to the operator as they are."""
    args, kwargs = call.arguments()
    return FIA[call.version][0](*args, **kwargs)[0]


def attend_contiguous(call: Call) -> torch.Tensor:
    """Makes every input contiguous by hand."""
    tensors = {name: tensor.contiguous() for name, tensor in call.tensors.items()}
    assert all(tensor.is_contiguous() for tensor in tensors.values())
    return attend(call.with_(tensors, call.lengths))


@dataclass(frozen=True)
class Step:
    """What a forward pass works on: `batch` sequences from slot `first` on, `queries` tokens of each.

    `numbers` [4, batch * queries]: tokens, positions, rows of the dense caches, rows of the paged ones.
    `table` [batch, PAGES]: the pages of each sequence. `lengths`: keys of each sequence, with those of this pass.
    """

    first: int
    batch: int
    queries: int
    numbers: torch.Tensor
    table: torch.Tensor
    lengths: list[int]
    mask: torch.Tensor | None = None


class Model:
    """Weights and caches. The same seed gives the same model."""

    def __init__(self):
        generator = torch.Generator().manual_seed(5)

        def weight(*shape: int, scale: float | None = None) -> torch.Tensor:
            values = torch.randn(*shape, generator=generator) * (scale or shape[0] ** -0.5)
            return values.to(DTYPE).to(DEVICE)

        self.tokens, self.places = weight(VOCABULARY, HIDDEN, scale=1.0), weight(POSITIONS, HIDDEN, scale=1.0)
        self.qkv = [weight(HIDDEN, (HEADS + 2) * WIDTH) for _ in range(2)]
        self.q = [weight(HIDDEN, HEADS * (LATENT + ROPE)) for _ in range(2)]
        self.latent = weight(HIDDEN, LATENT + ROPE)
        self.expanded = weight(HIDDEN, HEADS * 2 * LATENT + ROPE)
        self.grouped_out = [weight(HEADS * WIDTH, HIDDEN) for _ in range(2)]
        self.latent_out = [weight(HEADS * LATENT, HIDDEN) for _ in range(2)]
        self.head = weight(HIDDEN, VOCABULARY, scale=1.0)

        def cache(*row: int) -> torch.Tensor:
            return torch.zeros(SLOTS + 1, POSITIONS, *row, dtype=DTYPE, device=DEVICE)  # the last is for padding

        self.pages = [torch.zeros(BLOCKS, BLOCK, WIDTH, dtype=DTYPE, device=DEVICE) for _ in range(2)]
        self.fused_rows, self.latent_rows = cache(2, WIDTH), cache(1, LATENT + ROPE)
        self.expanded_rows, self.rope_rows = cache(HEADS, 2 * LATENT), cache(1, ROPE)

    def forward(self, step: Step, attend: Attend, side: torch.npu.Stream | None = None) -> torch.Tensor:
        """Logits [batch * queries, VOCABULARY]. With `side` the latent layers run on that stream."""
        x = self.tokens.index_select(0, step.numbers[0]) + self.places.index_select(0, step.numbers[1])
        with forked(side):
            latent = self.latent_layer(x, step, attend)
            latent = self.expanded_layer(torch.tanh(x + latent), step, attend)
        grouped = self.paged_layer(x, step, attend)
        grouped = self.fused_layer(torch.tanh(x + grouped), step, attend)
        join(side)
        return torch.tanh(x + grouped + latent) @ self.head

    def attention(self, attend: Attend, step: Step, version: int, tensors: Tensors, key_heads: int, **more):
        names = OPTIONS[version]
        width = tensors["query"].shape[-1] + (ROPE if "query_rope" in tensors else 0)
        options = dict(zip(names, (HEADS, key_heads, width**-0.5), strict=False)) | {"input_layout": "BSND"} | more
        if step.mask is not None:
            tensors = tensors | {"atten_mask": step.mask}
        output = attend(Call(version, tensors, options, step.lengths))
        return output.reshape(step.batch * step.queries, -1)

    def paged_layer(self, x: torch.Tensor, step: Step, attend: Attend) -> torch.Tensor:
        """Dense pages, as servers have them; the query is a slice of the fused projection."""
        q, k, v = (x @ self.qkv[0]).split([HEADS * WIDTH, WIDTH, WIDTH], -1)
        for pages, new in zip(self.pages, (k, v), strict=True):
            pages.view(-1, WIDTH).index_copy_(0, step.numbers[3], new)
        query = q.unflatten(0, (step.batch, step.queries)).unflatten(-1, (HEADS, WIDTH))
        tensors = {"query": query, "key": self.pages[0], "value": self.pages[1], "block_table": step.table}
        return self.attention(attend, step, 1, tensors, 1, block_size=BLOCK) @ self.grouped_out[0]

    def fused_layer(self, x: torch.Tensor, step: Step, attend: Attend) -> torch.Tensor:
        """Key and value lie side by side in the rows of one cache."""
        q, kv = (x @ self.qkv[1]).split([HEADS * WIDTH, 2 * WIDTH], -1)
        rows = self.write(self.fused_rows, step, kv)
        query = q.unflatten(0, (step.batch, step.queries)).unflatten(-1, (HEADS, WIDTH))
        tensors = {"query": query, "key": rows[:, :, :1], "value": rows[:, :, 1:]}
        return self.attention(attend, step, 2, tensors, 1) @ self.grouped_out[1]

    def latent_layer(self, x: torch.Tensor, step: Step, attend: Attend) -> torch.Tensor:
        """One row is key and value at once, and its last columns are the rope."""
        query, query_rope = self.latent_query(x, step, 0)
        rows = self.write(self.latent_rows, step, x @ self.latent)
        latent, rope = rows.split([LATENT, ROPE], -1)
        tensors = {"query": query, "key": latent, "value": latent, "query_rope": query_rope, "key_rope": rope}
        return self.attention(attend, step, 1, tensors, 1) @ self.latent_out[0]

    def expanded_layer(self, x: torch.Tensor, step: Step, attend: Attend) -> torch.Tensor:
        """Key and value are halves of one row for each head, and all heads share one rope."""
        query, query_rope = self.latent_query(x, step, 1)
        kv, rope = (x @ self.expanded).split([HEADS * 2 * LATENT, ROPE], -1)
        key, value = self.write(self.expanded_rows, step, kv).split([LATENT, LATENT], -1)
        rope = self.write(self.rope_rows, step, rope).expand(-1, -1, HEADS, -1)
        tensors = {"query": query, "key": key, "value": value, "query_rope": query_rope, "key_rope": rope}
        return self.attention(attend, step, 2, tensors, HEADS) @ self.latent_out[1]

    def latent_query(self, x: torch.Tensor, step: Step, layer: int) -> tuple[torch.Tensor, ...]:
        q = (x @ self.q[layer]).view(step.batch, step.queries, HEADS, LATENT + ROPE)
        return q.split([LATENT, ROPE], -1)

    @staticmethod
    def write(cache: torch.Tensor, step: Step, new: torch.Tensor) -> torch.Tensor:
        """Puts the new rows into a dense cache; the rows of the step's sequences."""
        cache.view(-1, cache[0, 0].numel()).index_copy_(0, step.numbers[2], new)
        return cache[step.first : step.first + step.batch]


def forked(side: torch.npu.Stream | None) -> contextlib.AbstractContextManager:
    """Runs what follows on another stream, behind all that this one has been given."""
    if side is None:
        return contextlib.nullcontext()
    event = torch.npu.Event()
    event.record()
    side.wait_event(event)
    return torch.npu.stream(side)


def join(side: torch.npu.Stream | None) -> None:
    if side is not None:
        event = torch.npu.Event()
        event.record(side)
        event.wait()
