"""Builds the library once for torch and, where torch_npu is installed, once more for torch with torch_npu."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustExtension

PACKAGE = Path(__file__).parent / "python" / "infini_rearrange"


def version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_version() -> str:
    """torch's own version string ("2.10.0+cpu"), asked in a process of its own."""
    command = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    if found.returncode != 0:
        raise SystemExit(
            "infini-rearrange is compiled against the installed torch, and this environment has none: "
            "pip install torch==2.10.0, then pip install --no-build-isolation ."
        )
    return found.stdout.strip()


def flavour(name: str, features: list[str]) -> RustExtension:
    return RustExtension(
        f"infini_rearrange._lib_{name}",
        path="Cargo.toml",
        binding=Binding.NoBinding,
        features=features,
        debug=False,
    )


has_npu = importlib.util.find_spec("torch_npu") is not None
extensions = [flavour("torch", ["torch"])]
if has_npu:
    extensions.append(flavour("torch_npu", ["torch-npu"]))

built_for = {"torch": torch_version(), "torch_npu": version_of("torch-npu") if has_npu else None}
record = PACKAGE / "_built_for.json"
if not record.exists() or json.loads(record.read_text()) != built_for:
    # A build that fails must not leave libraries for other versions beside the new record.
    for library in PACKAGE.glob("_lib_*.so"):
        library.unlink()
record.write_text(json.dumps(built_for) + "\n")

setup(rust_extensions=extensions, zip_safe=False)
