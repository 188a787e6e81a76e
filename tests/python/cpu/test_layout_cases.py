"""Every layout of tests/cases/layouts.json on the CPU, bit for bit against numpy."""

import json
import sys
from pathlib import Path

import infini_rearrange as ir
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import cases

CASES = cases.load()


def test_the_whole_file_is_covered():
    entries = json.loads(cases.FILE.read_text())
    assert len(CASES) == len(entries) > 30
    assert {case.name for case in CASES} >= cases.MEMORY_IS_CONTIGUOUS | cases.CONTRACT_IS_MET
    for case, entry in zip(CASES, entries, strict=True):
        assert list(case.shape[1:]) == entry["shape"][1:]
        assert case.span <= case.storage_elements


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rearrange(case):
    moved = ir.rearrange(case.tensor("cpu"), site="model.tensor")
    assert moved.is_contiguous()
    assert (tuple(moved.shape), moved.dtype) == (case.shape, case.dtype)
    assert cases.contents(moved) == case.expected()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rearrange_between_strided_sides(case):
    """Into a destination that lies the other way round: strided on both sides."""
    view = case.tensor("cpu")
    target = torch.empty(case.shape[::-1], dtype=case.dtype).permute(list(reversed(range(len(case.shape)))))
    assert ir.rearrange(view, out=target) is target
    assert cases.contents(target) == case.expected()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contiguous_at_its_site(case, site):
    view = case.tensor("cpu")
    before = site(case.site)["copied"]
    result = ir.contiguous(view, case.site)
    passes = case.name in cases.MEMORY_IS_CONTIGUOUS | cases.CONTRACT_IS_MET
    assert (result is view) == passes
    assert site(case.site)["copied"] - before == (0 if passes else 1)
    if not passes:
        assert result.is_contiguous()
        assert site(case.site)["bytes_copied"] == case.bytes
    assert cases.contents(result) == case.expected()
