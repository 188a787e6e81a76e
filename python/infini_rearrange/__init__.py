"""AutoContiguous as a plugin for Ascend NPUs.

Importing loads `torch.ops.infini` and touches no device; `install()` puts the policy in front of the operators that
have contracts.
"""

from infini_rearrange._errors import NonContiguousError
from infini_rearrange._loader import load as _load

_FLAVOUR = _load()

from infini_rearrange._api import (  # noqa: E402
    Explanation,
    contiguous,
    explain,
    install,
    policy,
    profile,
    rearrange,
    reset_profile,
    save_profile,
    uninstall,
    wrap,
)

if _FLAVOUR == "torch_npu":
    from infini_rearrange import _graphs

    _graphs.watch()

__version__ = "0.1.0"
__all__ = [
    "Explanation",
    "NonContiguousError",
    "contiguous",
    "explain",
    "install",
    "policy",
    "profile",
    "rearrange",
    "reset_profile",
    "save_profile",
    "uninstall",
    "wrap",
]
