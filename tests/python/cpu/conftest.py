"""torch alone on the CPU: operators of our own stand for the NPU's, with contracts from a file."""

import os
from pathlib import Path

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["INFINI_CONTRACTS"] = str(Path(__file__).parent / "contracts.toml")
os.environ.pop("INFINI_CONTIGUITY", None)

import subprocess
import sys

import infini_rearrange as ir
import pytest
import torch

LIBRARY = torch.library.Library("infini_test", "DEF")
LIBRARY.define(
    "attend(Tensor query, Tensor? key=None, *, Tensor? rows=None, Tensor? blocks=None, Tensor? block_table=None, "
    "int n=1) -> Tensor"
)
LIBRARY.define("turn(Tensor query, Tensor key, bool fail=False) -> (Tensor, Tensor)")
LIBRARY.define("fill(Tensor x, *, Tensor[] out) -> Tensor[]")
LIBRARY.define("keep(Tensor x, *, Tensor[] out) -> Tensor[]")
LIBRARY.define("gather(Tensor[] tensors) -> Tensor")
LIBRARY.define("misread(Tensor cache) -> Tensor")
LIBRARY.define("hide(Tensor cache) -> Tensor")

# What the last call of an operator was given.
seen: dict[str, torch.Tensor | None] = {}


@torch.library.impl(LIBRARY, "attend", "CPU")
def attend(query, key=None, *, rows=None, blocks=None, block_table=None, n=1):
    seen.clear()
    seen.update(query=query, key=key, rows=rows, blocks=blocks)
    given = [tensor for tensor in (query, key, rows, blocks) if tensor is not None]
    return torch.stack([tensor.double().sum() for tensor in given]).sum() * n


@torch.library.impl(LIBRARY, "turn", "CPU")
def turn(query, key, fail=False):
    for tensor in (query, key):
        assert tensor.is_contiguous(), "the operator refuses strided tensors"
    if fail:
        query.fill_(-1)
        raise ValueError("the operator failed half-way")
    query.mul_(2)
    key.add_(1)
    return query, key


@torch.library.impl(LIBRARY, "fill", "CPU")
def fill(x, *, out):
    for number, tensor in enumerate(out):
        assert tensor.is_contiguous()
        tensor.copy_(x + number)
    return out


@torch.library.impl(LIBRARY, "keep", "CPU")
def keep(x, *, out):
    """Has nothing to write, as FIA with the log-sum-exp it was not asked for."""
    return out


@torch.library.impl(LIBRARY, "gather", "CPU")
def gather(tensors):
    seen.clear()
    seen.update({str(number): tensor for number, tensor in enumerate(tensors)})
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


@torch.library.impl(LIBRARY, "hide", "CPU")
@torch.library.impl(LIBRARY, "misread", "CPU")
def misread(cache):
    seen.clear()
    seen.update(cache=cache)
    return cache.sum()


@pytest.fixture
def ops():
    return torch.ops.infini_test


@pytest.fixture
def given():
    return seen


@pytest.fixture
def hooked():
    ir.install()
    ir.reset_profile()
    yield
    ir.uninstall()


@pytest.fixture(autouse=True)
def _fresh_profile():
    ir.reset_profile()


@pytest.fixture
def site():
    """The figures of one site."""

    def figures(name):
        for one in ir.profile()["sites"]:
            if one["site"] == name:
                return one
        return dict.fromkeys(("calls", "contiguous", "copied", "copied_back", "hidden", "passed", "refused"), 0)

    return figures


@pytest.fixture
def in_new_process():
    """Runs code in a new Python that has imported infini_rearrange as ir; extra environment by keyword."""

    def run(code, check=True, before="", **environment):
        program = f"{before}\nimport infini_rearrange as ir\n{code}\n"
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
        assert not check or ended.returncode == 0, ended.stderr
        return ended

    return run
