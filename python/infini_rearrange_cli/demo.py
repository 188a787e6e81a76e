"""`infini-rearrange demo`: an MLA prefill step without the plugin and with it, under each policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from infini_rearrange_cli import profiles, report


@dataclass(frozen=True)
class Scene:
    title: str
    arguments: tuple[str, ...]
    # Of the simulated machine; a real one is what it is.
    cann: str
    policy: str = ""
    # One per release that behaves differently: on a real machine one of them is enough.
    other_release: bool = False


SIMULATED_SOC = "Ascend950PR_9599"
SCENES = (
    Scene("without the plugin, CANN 9.1.0", ("plain",), "9.1.0"),
    Scene("without the plugin, CANN 9.1.0.pre", ("plain",), "9.1.0.pre", other_release=True),
    Scene("with the plugin, auto", ("plugin",), "9.1.0", "auto"),
    Scene("with the plugin, auto, CANN 9.1.0.pre", ("plugin",), "9.1.0.pre", "auto", other_release=True),
    Scene("with the plugin, auto, key_rope by expand", ("plugin", "--expand"), "9.1.0", "auto"),
    Scene("with the plugin, warn", ("plugin",), "9.1.0", "warn"),
    Scene("with the plugin, strict", ("plugin",), "9.1.0", "strict"),
)


def has_npu() -> bool:
    """Whether torch_npu loads here and sees a device; asked in a process of its own, so that this one stays clean."""
    code = "import torch, torch_npu, sys; sys.exit(0 if torch.npu.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def play(scene: Scene, runner: list[str]) -> dict:
    """Runs one scene and returns what it printed. Raises RuntimeError where it printed nothing."""
    environment = os.environ | {"INFINI_CONTIGUITY": scene.policy, "INFINI_PROFILE": "count"}
    environment.pop("INFINI_PROFILE_DIR", None)
    if runner:
        environment |= {"CANN_SIM_SOC": SIMULATED_SOC, "CANN_SIM_VERSION": scene.cann}
    command = [*runner, sys.executable, "-m", "infini_rearrange_cli.scene", *scene.arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"the scene '{scene.title}' ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return {"title": scene.title, "policy": scene.policy or None} | json.loads(lines[-1])


def show(found: dict) -> None:
    print(f"\n== {found['title']} ==")
    for line in found["said"]:
        print(line)
    if found["outcome"] == "refused":
        message = found["message"] if found["raised"] == "NonContiguousError" else _essence(found["message"])
        print(f"refused: {found['raised']}: {message}")
    else:
        print(f"{found['outcome']}: largest difference to the float64 reference {found['max_abs_error']:.4f}")


def _essence(message: str) -> str:
    """torch_npu's own message without its timestamps and hints."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    kept = [line for line in lines if "failed" in line or "invalid" in line or "EZ" in line or "error code" in line]
    return "\n  ".join((kept or lines)[:4])


def run(options) -> int:
    real = has_npu()
    if not real and not options.sim:
        print(
            "infini-rearrange demo: no NPU here; in the source tree `make demo` runs it on the simulated CANN "
            "(--sim tests/cann-sim/run)",
            file=sys.stderr,
        )
        return 1
    simulated = not real
    runner = [os.path.abspath(options.sim)] if simulated else []
    scenes = [scene for scene in SCENES if simulated or not scene.other_release]
    found = []
    if not options.json:
        print("An MLA prefill step: q_nope, q_rope, k_nope, k_rope and v are views of wider projections (TND, bf16).")
        print(
            f"Simulated CANN, {SIMULATED_SOC}: real torch_npu, no hardware; no figure below is a hardware figure."
            if simulated
            else "On this machine's NPU."
        )
    for scene in scenes:
        found.append(play(scene, runner))
        if not options.json:
            show(found[-1])
    warned = next(one for one in found if one["policy"] == "warn")
    if options.json:
        print(json.dumps({"simulated": simulated, "scenes": found}, indent=2))
    else:
        print("\n== the figures per site, of the run under warn ==")
        print(report.table(profiles.merge([warned["profile"]])))
    return 0 if all(as_expected(one, simulated) for one in found) else 1


def as_expected(found: dict, simulated: bool) -> bool:
    """Whether a scene came out as it must. A real machine's operator by itself may do anything."""
    if found["policy"] == "strict":
        return found.get("raised") == "NonContiguousError"
    if found["policy"]:
        return found["outcome"] == "right"
    return not simulated or found["outcome"] == ("wrong" if found["cann"].endswith("pre") else "refused")
