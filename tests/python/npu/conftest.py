"""The real torch_npu over the simulated CANN: `tests/cann-sim/run .venv/bin/python -m pytest tests/python/npu`.

Where torch_npu cannot be used the run fails: a green run that looked at nothing would be worse than none.
"""

import ctypes
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# The shell's own settings would change what is tested.
for name in [name for name in os.environ if name.startswith("INFINI_")]:
    del os.environ[name]
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]


def pytest_configure(config):
    config.addinivalue_line("markers", "every_platform: what depends on SoC and CANN version; run on each of them")
    if "CANN_SIM_LIBRARY" not in os.environ:
        raise pytest.UsageError("tests/python/npu runs under the simulated CANN: tests/cann-sim/run python -m pytest …")
    try:
        import torch
        import torch_npu  # noqa: F401

        torch.empty(1, device="npu:0")
    except Exception as error:
        raise pytest.UsageError(f"torch_npu cannot be used, so nothing here can be tested: {error}") from error


class Simulation:
    """The simulated CANN's functions for tests. All ask after a synchronize, since the task queue is another thread."""

    FIA = tuple(f"aclnnFusedInferAttentionScoreV{version}" for version in (2, 3, 4, 5))

    def __init__(self):
        self._library = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
        for function in ("calls", "hidden_copies", "hidden_copy_bytes"):
            getattr(self._library, f"cann_sim_{function}").restype = ctypes.c_uint64

    @staticmethod
    def _wait():
        import torch

        torch.npu.synchronize()

    def reset(self):
        self._wait()
        self._library.cann_sim_reset()

    def calls(self, *functions):
        """How often any of the functions was called since the reset."""
        self._wait()
        return sum(self._library.cann_sim_calls(function.encode()) for function in functions)

    def launches(self, *operators):
        """How often any phase of the operators was entered."""
        return self.calls(*operators, *(f"{operator}GetWorkspaceSize" for operator in operators))

    def copies(self):
        return self.calls("aclnnInplaceCopy")

    def hidden(self):
        """Copies that operators made by themselves, and their bytes."""
        self._wait()
        return self._library.cann_sim_hidden_copies(), self._library.cann_sim_hidden_copy_bytes()

    def fault(self, spec):
        self._wait()
        assert self._library.cann_sim_fault(spec.encode() if spec else None) == 0


@pytest.fixture
def sim():
    simulation = Simulation()
    simulation.reset()
    yield simulation
    simulation.fault(None)


@pytest.fixture
def hooked():
    import infini_rearrange as ir

    ir.install()
    ir.reset_profile()
    yield
    ir.uninstall()


@pytest.fixture(autouse=True)
def _fresh_profile():
    import infini_rearrange as ir

    ir.reset_profile()


COUNTERS = ("calls", "contiguous", "copied", "copied_back", "hidden", "passed", "refused")
BYTES = ("bytes_copied", "bytes_copied_back", "bytes_hidden")


@pytest.fixture
def site():
    """The figures of one site."""
    import infini_rearrange as ir

    def figures(name):
        for one in ir.profile()["sites"]:
            if one["site"] == name:
                return one
        return dict.fromkeys(COUNTERS + BYTES, 0)

    return figures


@pytest.fixture
def total():
    """A counter summed over all sites."""
    import infini_rearrange as ir

    return lambda counter: sum(one[counter] for one in ir.profile()["sites"])


@pytest.fixture
def fresh():
    """Runs code in a process of its own, under the same simulation; returns the JSON of its last line."""

    def run(code, **environment):
        command = [sys.executable, "-c", textwrap.dedent(code)]
        ended = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)
        lines = [line for line in ended.stdout.splitlines() if line.startswith(("{", "["))]
        assert lines, f"ended with {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return json.loads(lines[-1])

    return run
