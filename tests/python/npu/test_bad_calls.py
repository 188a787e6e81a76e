"""Calls that are wrong: the hook adds nothing to what torch and torch_npu say, and the next call works."""

import dataclasses

import pytest
import torch
from infini_rearrange_cli import mla


@pytest.fixture
def step():
    return mla.make_step("npu:0", lengths=(8, 8), heads=2)


@pytest.mark.parametrize("name", ["query", "key", "key_rope", "mask"])
def test_tensors_on_two_devices(hooked, step, name):
    wrong = dataclasses.replace(step, **{name: getattr(step, name).cpu()})
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        mla.attention(wrong)
    right = mla.attention(step).cpu().double()
    assert (right - mla.reference(step)).abs().max() < 0.05


@pytest.mark.parametrize("wrong", ["x", 3, [1.0]])
def test_arguments_that_are_no_tensors(hooked, step, wrong):
    with pytest.raises(RuntimeError, match="for argument 'key'"):
        torch.ops.npu.npu_fused_infer_attention_score(step.query, wrong, step.value)


def test_none_for_a_tensor(hooked, step):
    with pytest.raises(RuntimeError):
        torch.ops.npu.npu_fused_infer_attention_score(step.query, None, step.value)
    assert mla.attention(step).shape == step.value.shape
