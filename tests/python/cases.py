"""The layouts of tests/cases/layouts.json as tensors of random bytes, and what numpy says lies in them.

The oracle shares nothing with the package: it walks the storage with numpy's own strided views, as integers of the
element's width, so that every bit counts (payloads of NaNs, zeros with a sign).
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

FILE = Path(__file__).parents[1] / "cases" / "layouts.json"
# Storage and result of one case together. Larger ones get fewer entries in dim 0; the strides stay.
LARGEST = 20 << 20

# Handed on without a copy where the contracts are at their strictest. The reason per layout is its own `note`.
MEMORY_IS_CONTIGUOUS = {"size_one_dim_odd_stride", "infinilm_unsqueeze_stride0", "zero_tokens", "scalar", "ic_2x2x2x4"}
CONTRACT_IS_MET = {
    "gqa_qkv_split_q_mrope",  # rows: only stride(0) differs
    # any: the operator takes every layout
    "mla_prefill_q_nope",
    "mla_absorbed_transpose",
    "bnsd_query_transposed",
    "rotary_mul_half_slice",
    "dsa_q_pe_half",
    "kv_rmsnorm_latent_view",
    "interleave_q_pe",
    "bool_mask_expand",
}


@dataclass(frozen=True)
class Case:
    """A view: shape, strides, offset and storage in elements."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage_elements: int
    dtype: torch.dtype
    site: str

    @property
    def bytes(self) -> int:
        """Of the elements, once each."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def span(self) -> int:
        """Elements of the storage up to the last one that the view touches."""
        if 0 in self.shape:
            return 0
        return self.offset + 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    def scaled(self, limit: int) -> Case:
        """The same with so few entries in dim 0 that storage and result fit into `limit` bytes."""
        case = self
        while case.shape and case.shape[0] > 1 and case.bytes + case.storage_elements * case.dtype.itemsize > limit:
            smaller = replace(case, shape=(case.shape[0] // 2, *case.shape[1:]))
            case = replace(smaller, storage_elements=min(case.storage_elements, smaller.span))
        return case

    def storage(self) -> np.ndarray:
        """Random bytes, the same in every run. A bool has no other bits than 0 and 1."""
        generator = np.random.default_rng(zlib.crc32(self.name.encode()))
        data = generator.integers(0, 256, self.storage_elements * self.dtype.itemsize, dtype=np.uint8)
        return data & 1 if self.dtype is torch.bool else data

    def tensor(self, device: str) -> torch.Tensor:
        """The view on a device."""
        base = torch.empty(0, dtype=self.dtype)
        if self.storage_elements:
            base = torch.from_numpy(self.storage()).view(self.dtype)
        base = base.to(device)
        return torch.as_strided(base, self.shape, self.strides, self.offset)

    def expected(self) -> bytes:
        """The elements in logical order, by numpy."""
        elements = self.storage().view(f"u{self.dtype.itemsize}")
        strides = [stride * self.dtype.itemsize for stride in self.strides]
        start = elements[self.offset :] if self.bytes else elements[:0]
        return np.lib.stride_tricks.as_strided(start, self.shape, strides).tobytes()


def load() -> list[Case]:
    """All cases of the file, scaled."""
    cases = []
    for entry in json.loads(FILE.read_text()):
        case = Case(
            name=entry["name"],
            shape=tuple(entry["shape"]),
            strides=tuple(entry["strides"]),
            offset=entry["offset"],
            storage_elements=entry["storage_elements"],
            dtype=getattr(torch, entry["dtype"]),
            site=entry["site"],
        )
        cases.append(case.scaled(LARGEST))
    return cases


def contents(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's elements in logical order; the tensor may be strided."""
    host = tensor.cpu()
    return host.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
