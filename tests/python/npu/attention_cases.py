"""Calls of fused attention in every input layout, and attention in float64 on the host as their reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

DEVICE = "npu:0"
# What bf16 inputs and one rounding of the result leave; f16 lies far below.
ABSOLUTE, RELATIVE = 0.03, 0.02
# What version 2 of the operator calls the options of version 1.
SECOND_NAMES = {
    "actual_seq_lengths": "actual_seq_qlen",
    "actual_seq_lengths_kv": "actual_seq_kvlen",
    "num_heads": "num_query_heads",
    "scale": "softmax_scale",
}
COMPRESSED_MASK = 2048


@dataclass(frozen=True)
class Problem:
    """One sequence: query [Sq, N, D], key [Sk, Nkv, D], value [Sk, Nkv, Dv], hidden [Sq, Sk] or none."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float
    hidden: torch.Tensor | None = None

    def solve(self) -> torch.Tensor:
        """[Sq, N, Dv] in float64."""
        group = self.query.shape[1] // self.key.shape[1]
        query = self.query.double().transpose(0, 1)
        key, value = (t.double().repeat_interleave(group, 1).transpose(0, 1) for t in (self.key, self.value))
        scores = query @ key.transpose(1, 2) * self.scale
        if self.hidden is not None:
            scores = scores.masked_fill(self.hidden, -math.inf)
        return (scores.softmax(-1) @ value).transpose(0, 1)


Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Scenario:
    """Contiguous tensors on the device, the options of version 1, and the reference for any values of the tensors."""

    name: str
    make: Callable[[], Tensors]
    options: dict
    reference: Callable[[Tensors], torch.Tensor]


def _random(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def _named(shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> Tensors:
    return {name: _random(*shape, dtype=dtype, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}


def _causal(queries: int, keys: int) -> torch.Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).triu(1 + keys - queries)


_mask: list[torch.Tensor] = []


def _compressed_mask() -> torch.Tensor:
    if not _mask:
        _mask.append(torch.ones(COMPRESSED_MASK, COMPRESSED_MASK, dtype=torch.bool).triu(1).to(DEVICE))
    return _mask[0]


def mla() -> Scenario:
    """Prefill of two sequences packed as TND, rope apart, causal."""
    ends, heads, scale = [10, 24], 2, 1 / math.sqrt(192)
    shapes = {
        "query": (24, heads, 128),
        "key": (24, heads, 128),
        "value": (24, heads, 128),
        "query_rope": (24, heads, 64),
        "key_rope": (24, heads, 64),
    }

    def make() -> Tensors:
        return _named(shapes, torch.bfloat16) | {"atten_mask": _compressed_mask()}

    def reference(host: Tensors) -> torch.Tensor:
        query = torch.cat([host["query"], host["query_rope"]], -1)
        key = torch.cat([host["key"], host["key_rope"]], -1)
        parts, start = [], 0
        for end in ends:
            q, k, v = query[start:end], key[start:end], host["value"][start:end]
            parts.append(Problem(q, k, v, scale, _causal(end - start, end - start)).solve())
            start = end
        return torch.cat(parts)

    options = {
        "actual_seq_lengths": ends,
        "actual_seq_lengths_kv": ends,
        "num_heads": heads,
        "num_key_value_heads": heads,
        "input_layout": "TND",
        "scale": scale,
        "sparse_mode": 3,
    }
    return Scenario("mla_tnd", make, options, reference)


def dense(layout: str, heads: int, key_heads: int, dtype: torch.dtype, name: str) -> Scenario:
    """Two sequences of 12 queries and 20 keys with a mask of their own each."""
    batch, queries, keys, width, scale = 2, 12, 20, 64, 0.125

    def shape(length: int, count: int) -> tuple[int, ...]:
        return {
            "BSND": (batch, length, count, width),
            "BNSD": (batch, count, length, width),
            "BSH": (batch, length, count * width),
        }[layout]

    def make() -> Tensors:
        kv = shape(keys, key_heads)
        # Hides different keys from every query, but never all of them.
        rows, columns = torch.arange(batch * queries).view(batch, 1, queries, 1), torch.arange(keys)
        mask = ((rows + columns) % 3 == 0).to(DEVICE)
        return _named({"query": shape(queries, heads), "key": kv, "value": kv}, dtype) | {"atten_mask": mask}

    def rows_of(tensor: torch.Tensor, count: int) -> torch.Tensor:
        """[B, S, N, D]"""
        return tensor.transpose(1, 2) if layout == "BNSD" else tensor.reshape(batch, -1, count, width)

    def reference(host: Tensors) -> torch.Tensor:
        query = rows_of(host["query"], heads)
        key, value = (rows_of(host[name], key_heads) for name in ("key", "value"))
        masks = host["atten_mask"].expand(batch, 1, queries, keys)
        parts = [Problem(query[b], key[b], value[b], scale, masks[b, 0]).solve() for b in range(batch)]
        result = torch.stack(parts)
        return result.transpose(1, 2) if layout == "BNSD" else result.reshape(shape(queries, heads))

    options = {"num_heads": heads, "num_key_value_heads": key_heads, "input_layout": layout, "scale": scale}
    return Scenario(name, make, options, reference)


def paged() -> Scenario:
    """A decode step of three sequences over pages of 128 positions."""
    heads, key_heads, width, block, scale = 4, 2, 64, 128, 0.125
    table, lengths = [[4, 1], [3, 0], [2, 5]], [150, 70, 256]

    def make() -> Tensors:
        cache = (6, block, key_heads * width)
        tensors = _named({"query": (3, 1, heads, width), "key": cache, "value": cache}, torch.bfloat16)
        return tensors | {"block_table": torch.tensor(table, dtype=torch.int32, device=DEVICE)}

    def reference(host: Tensors) -> torch.Tensor:
        parts = []
        for sequence, length in enumerate(lengths):
            blocks = host["block_table"][sequence].long()
            rows = [host[name][blocks].reshape(-1, key_heads, width)[:length] for name in ("key", "value")]
            parts.append(Problem(host["query"][sequence], *rows, scale).solve())
        return torch.stack(parts)

    options = {
        "actual_seq_lengths_kv": lengths,
        "num_heads": heads,
        "num_key_value_heads": key_heads,
        "input_layout": "BSND",
        "scale": scale,
        "block_size": block,
    }
    return Scenario("paged", make, options, reference)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        mla(),
        dense("BSND", 2, 2, torch.float16, "bsnd"),
        dense("BNSD", 2, 2, torch.bfloat16, "bnsd"),
        dense("BSH", 2, 2, torch.float16, "bsh"),
        dense("BSND", 4, 2, torch.bfloat16, "gqa"),
        paged(),
    )
}


@dataclass(frozen=True)
class Operator:
    """One of the ways to call fused attention."""

    version: int
    out: bool

    @property
    def site(self) -> str:
        return "npu_fused_infer_attention_score" + ("_v2" if self.version == 2 else "")

    def options(self, options: dict) -> dict:
        return options if self.version == 1 else {SECOND_NAMES.get(name, name): v for name, v in options.items()}

    def max_workspace(self, tensors: Tensors, options: dict) -> torch.Tensor:
        """The query that graph-capturing servers make before `.out`."""
        return getattr(torch.ops.npu, f"_{self.site}_get_max_workspace")(**tensors, **self.options(options))

    def __call__(self, tensors: Tensors, options: dict, into: list[torch.Tensor] | None = None) -> torch.Tensor:
        """The attention result. With `out` it is written into `into`, or into fresh contiguous tensors."""
        packet = getattr(torch.ops.npu, self.site)
        if not self.out:
            return packet(**tensors, **self.options(options))[0]
        if into is None:
            into = [torch.empty_like(tensors["query"]), torch.empty(1, dtype=tensors["query"].dtype, device=DEVICE)]
        workspace = self.max_workspace(tensors, options)
        result = packet.out(**tensors, **self.options(options), workspace=workspace, out=into)
        assert result[0].data_ptr() == into[0].data_ptr()
        return into[0]


OPERATORS = {
    f"v{version}{'.out' if out else ''}": Operator(version, out) for version in (1, 2) for out in (False, True)
}


def on_host(tensors: Tensors) -> Tensors:
    """Contiguous copies on the CPU."""
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


def assert_close(result: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(result.cpu().double(), expected.double(), atol=ABSOLUTE, rtol=RELATIVE)
