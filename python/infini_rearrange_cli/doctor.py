"""`infini-rearrange doctor`: what is installed, what is missing, and which contracts hold on this machine."""

from __future__ import annotations

import json
import os

VARIABLES = ("INFINI_CONTIGUITY", "INFINI_PROFILE", "INFINI_PROFILE_DIR", "INFINI_CONTRACTS")


def findings() -> dict:
    """Everything doctor prints. Sets the device where there is one, since CANN knows its SoC only then."""
    found: dict = {"environment": {name: os.environ.get(name) for name in VARIABLES}, "problems": []}
    try:
        import infini_rearrange
    except (ImportError, RuntimeError) as error:
        found["problems"].append(str(error))
        return found
    import torch
    from infini_rearrange import _loader

    found["infini_rearrange"] = infini_rearrange.__version__
    found["flavour"] = infini_rearrange._FLAVOUR
    found["torch"] = torch.__version__
    missing = _loader.npu_missing()
    found["npu"] = missing is None and torch.npu.is_available()
    if missing is not None:
        found["problems"].append(missing)
    elif found["npu"]:
        torch.empty(1, device="npu")
    else:
        found["problems"].append(
            "torch_npu is loaded but sees no device: check npu-smi info and ASCEND_RT_VISIBLE_DEVICES"
        )
    found |= {"library": json.loads(torch.ops.infini._doctor())}
    hooked = infini_rearrange.install()
    found["hooked"] = hooked
    covered = [operator["operator"] for operator in found["library"]["contracts"]]
    found["not_registered"] = [name for name in covered if name not in hooked]
    infini_rearrange.uninstall()
    return found


def text(found: dict) -> str:
    """The findings for people."""
    lines = []
    if "library" in found:
        library = found["library"]
        lines += [
            f"infini-rearrange {found['infini_rearrange']}, flavour {found['flavour']}, torch {found['torch']} "
            f"(built for torch {library['torch']}, torch-npu {library['torch_npu'] or '-'})",
            f"SoC {library['soc'] or 'unknown'}, CANN {library['cann'] or 'unknown'}: "
            + ("an NPU is there" if found["npu"] else "no NPU"),
        ]
    for name, value in found["environment"].items():
        lines.append(f"{name}={value if value is not None else '(unset)'}")
    for problem in found["problems"]:
        lines.append(f"PROBLEM {problem}")
    if "library" in found:
        lines.append("")
        if found["not_registered"]:
            lines.append("not registered in this process: " + ", ".join(found["not_registered"]))
        lines.append("contracts on this machine (contract / what the operator does by itself):")
        for operator in found["library"]["contracts"]:
            lines.append(f"  {operator['operator']}")
            for argument in operator["arguments"]:
                for row in argument["rows"]:
                    given = f" with {', '.join(row['present'])}" if row["present"] else ""
                    given += f" without {', '.join(row['absent'])}" if row["absent"] else ""
                    lines.append(f"    {argument['argument']}{given}: {row['contract']} / {row['unmet']}")
    return "\n".join(lines)


def run(options) -> int:
    found = findings()
    print(json.dumps(found, indent=2) if options.json else text(found))
    return 0 if "library" in found else 1
