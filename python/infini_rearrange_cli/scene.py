"""One scene of the demo, in a process of its own since a process has one CANN: prints a line of JSON.

python -m infini_rearrange_cli.scene plain|plugin [--expand]
"""

from __future__ import annotations

import json
import logging
import sys

# What bf16 inputs and one rounding of the output leave: results beyond it are wrong, not imprecise.
TOLERANCE = 0.05


class Collected(logging.Handler):
    """Keeps what the library says."""

    def __init__(self):
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


def main(arguments: list[str]) -> int:
    import infini_rearrange
    import torch

    from infini_rearrange_cli import mla

    said = Collected()
    logger = logging.getLogger("infini_rearrange")
    logger.addHandler(said)
    logger.propagate = False
    step = mla.make_step("npu:0", expand="--expand" in arguments)
    found = {"scene": arguments[0]}
    if arguments[0] == "plugin":
        infini_rearrange.install()
    try:
        output = mla.attention(step).cpu()
        error = (output.double() - mla.reference(step)).abs().max().item()
        found |= {"outcome": "right" if error <= TOLERANCE else "wrong", "max_abs_error": error}
    except RuntimeError as error:
        found |= {"outcome": "refused", "raised": type(error).__name__, "message": str(error).strip()}
    library = json.loads(torch.ops.infini._doctor())
    found |= {"soc": library["soc"], "cann": library["cann"], "said": said.lines, "profile": infini_rearrange.profile()}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
