"""What operators do with strided inputs on the simulated machine: the operators' history, not contracts.toml."""

import os

SOC = os.environ.get("CANN_SIM_SOC", "Ascend910B1")
CANN = os.environ.get("CANN_SIM_VERSION", "9.1.0")

COPIES, REFUSES, MISREADS = "copies", "refuses", "misreads"


def _fused_attention() -> str:
    if CANN == "9.1.0.pre":
        return MISREADS
    if CANN == "9.1.0" and SOC.startswith("Ascend950"):
        return REFUSES
    return COPIES


# Of key, value and key_rope. The query, masks and tables are copied by the operator in every release.
FUSED_ATTENTION = _fused_attention()
