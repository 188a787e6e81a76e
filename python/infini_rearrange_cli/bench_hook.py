"""`infini-rearrange bench hook`: what the hook costs an FIA call whose inputs are all contiguous.

Host time of the call alone (the launch, not the operator), raw and hooked in alternating rounds of one process, so that
drift of the machine hits both alike; the ratio of medians is the figure.
"""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import time

CALLS_OF_WARM_UP = 10


def measure(rounds: int, calls: int) -> dict:
    import infini_rearrange
    import torch

    from infini_rearrange_cli import mla

    step = mla.make_step("npu:0", lengths=(1, 1), heads=1).contiguous()

    def round_of_calls() -> float:
        torch.npu.synchronize()
        spent = 0.0
        for _ in range(calls):
            start = time.perf_counter()
            mla.attention(step)
            spent += time.perf_counter() - start
            # The queue stays short: a full one would make the launch wait for the device.
            torch.npu.synchronize()
        return spent / calls * 1e6

    raw, hooked = [], []
    for _ in range(2):
        for installed in (False, True):
            infini_rearrange.install() if installed else infini_rearrange.uninstall()
            for _ in range(CALLS_OF_WARM_UP):
                mla.attention(step)
    for number in range(rounds):
        order = (False, True) if number % 2 == 0 else (True, False)
        for installed in order:
            infini_rearrange.install() if installed else infini_rearrange.uninstall()
            (hooked if installed else raw).append(round_of_calls())
    infini_rearrange.uninstall()
    pairs = [with_hook / without for without, with_hook in zip(raw, hooked, strict=True)]
    return {
        "bench": "hook",
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {_cpu()}",
        "torch": torch.__version__,
        "device": torch.npu.get_device_name(0),
        "rounds": rounds,
        "calls_per_round": calls,
        "raw_us": round(statistics.median(raw), 3),
        "hooked_us": round(statistics.median(hooked), 3),
        "ratio": round(statistics.median(hooked) / statistics.median(raw), 4),
        "ratio_of_pairs": round(statistics.median(pairs), 4),
    }


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def run(options) -> int:
    found = measure(options.rounds, options.calls)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"host time of npu_fused_infer_attention_score, all inputs contiguous, on {found['device']}")
        print(f"  raw     {found['raw_us']:8.2f} us")
        print(f"  hooked  {found['hooked_us']:8.2f} us")
        print(f"  ratio   {found['ratio']:8.4f} (median of pairs {found['ratio_of_pairs']:.4f})")
    return 0
