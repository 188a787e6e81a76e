"""Every layout of tests/cases/layouts.json on the simulated NPU, bit for bit against numpy."""

import math

import cases
import infini_rearrange as ir
import numpy as np
import platform_facts as facts
import pytest
import torch

DEVICE = "npu:0"
CASES = cases.load()
BLOCK = 128


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rearrange(case, sim, site):
    view = case.tensor(DEVICE)
    sim.reset()
    moved = ir.rearrange(view, site="model.tensor")
    assert sim.copies() == (1 if case.bytes else 0)
    assert site("model.tensor")["copied"] == (1 if case.bytes else 0)
    assert moved.is_contiguous()
    assert (moved.device, tuple(moved.shape), moved.dtype) == (view.device, case.shape, case.dtype)
    assert cases.contents(moved) == case.expected()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contiguous_at_its_site(case, sim, site):
    view = case.tensor(DEVICE)
    sim.reset()
    result = ir.contiguous(view, case.site)
    passes = case.name in cases.MEMORY_IS_CONTIGUOUS | cases.CONTRACT_IS_MET
    assert (result is view) == passes
    assert sim.copies() == site(case.site)["copied"] == (0 if passes else 1)
    if not passes:
        assert result.is_contiguous()
        assert site(case.site)["bytes_copied"] == case.bytes
    assert cases.contents(result) == case.expected()


def paged_call():
    """The paged cache of the file with few blocks, and a decode step of two sequences over it: call and reference."""
    case = next(case for case in CASES if case.name == "paged_cache_padded_blocks")
    blocks, block, heads, width = 6, *case.shape[1:]
    assert block == BLOCK
    generator = np.random.default_rng(5)
    storage = torch.from_numpy(generator.standard_normal(blocks * case.strides[0], dtype=np.float32)).to(case.dtype)
    padded = storage.to(DEVICE).as_strided((blocks, *case.shape[1:]), case.strides)
    assert not padded.is_contiguous()
    cache = padded.view(blocks, block, heads * width)
    query = torch.from_numpy(generator.standard_normal((2, 1, heads, width), dtype=np.float32)).to(case.dtype)
    table, lengths = torch.tensor([[4, 1], [3, 0]], dtype=torch.int32), [150, 70]

    expected = torch.zeros(2, 1, heads, width, dtype=torch.float64)
    for sequence, length in enumerate(lengths):
        rows = padded.cpu()[table[sequence].long()].reshape(-1, heads, width)[:length].double().transpose(0, 1)
        weights = (query[sequence].double().transpose(0, 1) @ rows.transpose(1, 2) / math.sqrt(width)).softmax(-1)
        expected[sequence] = (weights @ rows).transpose(0, 1)

    def call():
        return torch.ops.npu.npu_fused_infer_attention_score(
            query.to(DEVICE),
            cache,
            cache,
            block_table=table.to(DEVICE),
            actual_seq_lengths_kv=lengths,
            num_heads=heads,
            num_key_value_heads=heads,
            input_layout="BSND",
            scale=1 / math.sqrt(width),
            block_size=block,
        )[0].cpu()

    return call, expected, cache


@pytest.mark.every_platform
@pytest.mark.parametrize("policy", ["auto", "warn"])
def test_a_paged_cache_is_never_copied(policy, hooked, sim, site):
    call, expected, cache = paged_call()
    before = cases.contents(cache)
    sim.reset()
    with ir.policy(policy):
        if facts.FUSED_ATTENTION == facts.COPIES:
            torch.testing.assert_close(call().double(), expected, atol=0.03, rtol=0.02)
            assert site("npu_fused_infer_attention_score.key")["hidden"] == 1
            assert sim.hidden()[1] == 2 * cache.nbytes
        elif facts.FUSED_ATTENTION == facts.REFUSES:
            with pytest.raises(RuntimeError, match="key tensor must be contiguous") as raised:
                call()
            assert not isinstance(raised.value, ir.NonContiguousError)
            assert site("npu_fused_infer_attention_score.key")["passed"] == 1
        else:
            with pytest.raises(ir.NonContiguousError, match="never copied"):
                call()
            assert sim.launches(*sim.FIA) == 0
    for argument in ("key", "value"):
        assert site(f"npu_fused_infer_attention_score.{argument}")["copied"] == 0
    # Host to device copies are no aclnnInplaceCopy: nothing at all was rearranged.
    assert sim.copies() == 0
    assert cases.contents(cache) == before


@pytest.mark.every_platform
def test_a_strict_policy_refuses_a_strided_cache(hooked, sim):
    call, _, _ = paged_call()
    sim.reset()
    with ir.policy("strict"), pytest.raises(ir.NonContiguousError, match=r"npu_fused_infer_attention_score\.key"):
        call()
    assert sim.launches(*sim.FIA) == sim.copies() == 0
