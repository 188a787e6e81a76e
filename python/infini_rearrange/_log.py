"""From the library to the Python logger `infini_rearrange`; no handler is installed."""

from __future__ import annotations

import _thread
import ctypes
import logging
import os
import sys

logger = logging.getLogger("infini_rearrange")

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint8, ctypes.c_char_p, ctypes.c_char_p)


def calling_line() -> str | None:
    """File, line and function of the innermost Python frame that is neither torch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        module = str(frame.f_globals.get("__name__") or "")
        top = module.split(".", 1)[0]
        if not name.startswith(_HERE) and top not in ("torch", "torch_npu", "contextlib", "functools"):
            return f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return None


@_CALLBACK
def _listen(level: int, head: bytes, tail: bytes) -> None:
    # Called from inside an operator: nothing may escape, and nothing is worth a failed call.
    try:
        if not logger.isEnabledFor(level):
            return
        lines = [head.decode(errors="replace")]
        if tail:
            called = calling_line()
            if called:
                lines.append(f"  called  {called}")
            lines.append(tail.decode(errors="replace"))
        logger.log(level, "%s", "\n".join(lines))
    except KeyboardInterrupt:
        _thread.interrupt_main()
    except Exception:
        pass


def callback_address() -> int:
    """The address for torch.ops.infini._set_log_callback; the callback lives as long as this module."""
    return ctypes.cast(_listen, ctypes.c_void_p).value
