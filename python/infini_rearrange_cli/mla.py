"""An MLA prefill step as servers run it: FIA over views of fused projections, and its float64 reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

NOPE, ROPE, VALUE = 128, 64, 128
# The compressed causal mask that sparse_mode 3 wants.
MASK = 2048


@dataclass
class Step:
    """Inputs of one step on a device, TND. Views as the servers make them: no `.contiguous()` anywhere."""

    query: torch.Tensor
    query_rope: torch.Tensor
    key: torch.Tensor
    key_rope: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor
    ends: list[int]
    scale: float

    @property
    def heads(self) -> int:
        return self.query.shape[1]

    def contiguous(self) -> Step:
        """The same step with every input made contiguous."""
        tensors = {
            name: getattr(self, name).contiguous()
            for name in ("query", "query_rope", "key", "key_rope", "value", "mask")
        }
        return Step(**tensors, ends=self.ends, scale=self.scale)


def make_step(device: str, lengths: tuple[int, ...] = (48, 80), heads: int = 8, expand: bool = False) -> Step:
    """Projections of random values, cut into views. `expand`: one key_rope for all heads, stride 0."""
    generator = torch.Generator().manual_seed(0)
    tokens = sum(lengths)

    def projection(heads: int, width: int) -> torch.Tensor:
        return torch.randn(tokens, heads, width, generator=generator).to(torch.bfloat16).to(device)

    query, query_rope = projection(heads, NOPE + ROPE).split([NOPE, ROPE], dim=-1)
    key_value = projection(heads, NOPE + VALUE)
    one_for_all, one_each = projection(1, ROPE).expand(-1, heads, -1), projection(heads, NOPE + ROPE)[..., NOPE:]
    key_rope = one_for_all if expand else one_each
    ends = [sum(lengths[: count + 1]) for count in range(len(lengths))]
    mask = torch.ones(MASK, MASK, dtype=torch.bool).triu(1).to(device)
    return Step(
        query,
        query_rope,
        key_value[..., :NOPE],
        key_rope,
        key_value[..., NOPE:],
        mask,
        ends,
        1 / math.sqrt(NOPE + ROPE),
    )


def attention(step: Step, op=None) -> torch.Tensor:
    """Runs FIA on the step."""
    op = op or torch.ops.npu.npu_fused_infer_attention_score
    output, _ = op(
        step.query,
        step.key,
        step.value,
        query_rope=step.query_rope,
        key_rope=step.key_rope,
        atten_mask=step.mask,
        actual_seq_lengths=step.ends,
        actual_seq_lengths_kv=step.ends,
        num_heads=step.heads,
        num_key_value_heads=step.heads,
        input_layout="TND",
        scale=step.scale,
        sparse_mode=3,
    )
    return output


def reference(step: Step) -> torch.Tensor:
    """The same in float64 on the CPU."""
    query = torch.cat([step.query.cpu(), step.query_rope.cpu()], -1).double()
    key = torch.cat([step.key.cpu(), step.key_rope.cpu()], -1).double()
    value = step.value.cpu().double()
    outputs, start = [], 0
    for end in step.ends:
        q, k, v = (tensor[start:end].transpose(0, 1) for tensor in (query, key, value))
        scores = q @ k.transpose(-1, -2) * step.scale
        causal = torch.ones(end - start, end - start, dtype=torch.bool).triu(1)
        outputs.append((scores.masked_fill(causal, -math.inf).softmax(-1) @ v).transpose(0, 1))
        start = end
    return torch.cat(outputs)
