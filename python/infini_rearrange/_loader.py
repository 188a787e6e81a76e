"""Finds the flavour of the library that fits this environment, and loads it. No device is touched."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import logging
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_REBUILD = "in its source tree, pip install --no-build-isolation --force-reinstall --no-deps ."
logger = logging.getLogger("infini_rearrange")


def import_torch():
    """torch itself; where it fails because it loads torch_npu by itself, says what that misses."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise ImportError("infini_rearrange needs torch: pip install torch==2.10.0") from error
        raise
    except RuntimeError as error:
        cause = error.__cause__ or error
        raise ImportError(
            f"torch cannot load torch_npu ({_first_line(cause)}): source CANN's set_env.sh before starting Python, or "
            "set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to use torch without the NPU"
        ) from error
    return torch


def npu_missing() -> str | None:
    """Why the NPU cannot be used, in one sentence, or None if torch_npu imports. Call import_torch first."""
    if "torch_npu" in sys.modules:
        return None
    if importlib.util.find_spec("torch_npu") is None:
        return "torch_npu is not installed: pip install the torch-npu that goes with your torch to use the NPU"
    try:
        import torch_npu  # noqa: F401
    except Exception as error:
        sys.modules.pop("torch_npu", None)
        return (
            f"torch_npu is installed but cannot be loaded ({_first_line(error)}): "
            "source CANN's set_env.sh before starting Python"
        )
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def built_for() -> dict:
    """The versions the library was compiled against."""
    try:
        return json.loads((_HERE / "_built_for.json").read_text())
    except FileNotFoundError:
        raise ImportError(f"infini_rearrange is not built: {_REBUILD}") from None


def library(flavour: str) -> Path | None:
    """The file of a flavour (`torch` or `torch_npu`), None if it was not built."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = _HERE / f"_lib_{flavour}{suffix}"
        if path.exists():
            return path
    return None


def check_versions(built: dict, torch_version: str, npu_version: str | None) -> None:
    """Raises ImportError where the library was built for another torch or torch_npu than is installed.

    torch's C++ interface holds for one version only; loading another would crash, or worse, not crash.
    """
    if built["torch"] != torch_version:
        raise ImportError(
            f"infini_rearrange was built for torch {built['torch']}, but torch {torch_version} is installed: {_REBUILD}"
        )
    if npu_version is not None and built.get("torch_npu") != npu_version:
        was = built.get("torch_npu")
        raise ImportError(
            f"infini_rearrange was built {f'for torch-npu {was}' if was else 'without torch_npu'}, but torch-npu "
            f"{npu_version} is installed: {_REBUILD}"
        )


def load() -> str:
    """Loads the library and returns its flavour. Raises ImportError with one actionable sentence."""
    torch = import_torch()
    missing = npu_missing()
    npu_version = None
    if missing is None:
        from importlib.metadata import version

        npu_version = version("torch-npu")
    elif importlib.util.find_spec("torch_npu") is not None:
        logger.warning("%s; infini_rearrange works on the CPU only", missing)
    check_versions(built_for(), torch.__version__, npu_version)
    flavour = "torch" if missing else "torch_npu"
    path = library(flavour)
    if path is None:
        raise ImportError(f"infini_rearrange has no library for {flavour} (_lib_{flavour}*.so is missing): {_REBUILD}")
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(f"infini_rearrange cannot load {path.name} ({_first_line(error)}): {_REBUILD}") from error
    return flavour
