"""What users call. Everything is decided in the library; this is its Python face."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch

from infini_rearrange import _log

_ops = torch.ops.infini
_ops._configure()
_ops._set_log_callback(_log.callback_address())

rearrange = _ops.rearrange
contiguous = _ops.contiguous


def install() -> list[str]:
    """Puts the policy in front of every operator that has a contract and is registered; returns their names.

    Idempotent; call it again after importing a package that defines more operators. Touches no device. It writes the
    dispatcher's tables, as `uninstall` and the first `wrap` of an operator do: no other thread may be inside them.
    """
    return list(_ops._install())


def uninstall() -> None:
    """Takes the hooks away again. No other thread may be inside a hooked operator."""
    _ops._uninstall()


def _leave_dynamo() -> None:
    # Dynamo would open or close the scope while tracing, once, and not where the program does: raising makes it leave
    # the frame to Python.
    if torch.compiler.is_dynamo_compiling():
        raise RuntimeError("infini_rearrange.policy and wrap cannot be traced; they take effect outside torch.compile")


def _push(directives: str, site: str, activate: bool) -> int:
    _leave_dynamo()
    return _ops._scope_push(directives, site, activate)


def _pop(token: int) -> None:
    _leave_dynamo()
    _ops._scope_pop(token)


class policy(contextlib.ContextDecorator):
    """A policy for a scope of this thread, over INFINI_CONTIGUITY: `with policy("warn,npu_mrope.*=strict"): …`.

    Also a decorator. Scopes nest: the innermost that speaks of a site decides. Raises RuntimeError for directives that
    do not parse.
    """

    def __init__(self, directives: str):
        self._directives = directives
        self._tokens = threading.local()
        # A wrong directive is found where it is written, not where the scope is entered.
        _pop(_push(directives, "", False))

    def __enter__(self):
        self._stack().append(_push(self._directives, "", False))
        return self

    def __exit__(self, *exc):
        _pop(self._stack().pop())

    def _stack(self) -> list[int]:
        if not hasattr(self._tokens, "stack"):
            self._tokens.stack = []
        return self._tokens.stack


def wrap(op: Callable, *, site: str = "", policy: str = "") -> Callable:
    """An operator that keeps its contracts at this call site even where `install()` was not called.

    `op` is an operator of torch.ops or torch_npu that has contracts, `site` names the call site in profiles and
    directives (`SITE.argument` instead of `operator.argument`), `policy` are directives for it.
    """
    name = _operator_name(op)
    _ops._wrap(name)
    _pop(_push(policy, site, False))

    @functools.wraps(op, updated=())
    def wrapped(*args, **kwargs):
        token = _push(policy, site, True)
        try:
            return op(*args, **kwargs)
        finally:
            _pop(token)

    return wrapped


def _operator_name(op: Callable) -> str:
    """The qualified name of an operator, overload or packet."""
    overload = getattr(op, "_schema", None)
    if overload is not None:
        return overload.name
    qualified = getattr(op, "_qualified_op_name", None)
    if qualified is not None:
        return qualified
    raise TypeError(
        f"wrap needs an operator such as torch_npu.npu_fused_infer_attention_score or torch.ops.npu.npu_mrope.default, "
        f"not {type(op).__name__}"
    )


@dataclass(frozen=True)
class Explanation:
    """How a view lies in memory, and what to do about it. Strides and offset in elements."""

    dtype: str
    shape: list[int]
    strides: list[int]
    offset: int
    bytes: int
    contiguous: bool
    layout: str
    diagnosis: str
    remedy: str

    def __str__(self) -> str:
        if self.contiguous:
            return f"{self.layout}: contiguous"
        return f"{self.layout}: {self.diagnosis}\navoid: {self.remedy}"


def explain(tensor: torch.Tensor) -> Explanation:
    """The diagnosis of a view: how it came to be, and what its producer can change."""
    return Explanation(**json.loads(_ops._explain(tensor)))


def profile() -> dict:
    """The figures per site since the start or the last reset, as `save_profile` writes them."""
    return json.loads(_ops._profile())


def reset_profile() -> None:
    """Sets all figures to zero."""
    _ops._profile_reset()


def save_profile(path: str | os.PathLike) -> None:
    """Writes the figures as JSON, atomically."""
    _ops._profile_save(os.fspath(path))


def _save_at_exit() -> None:
    folder = os.environ.get("INFINI_PROFILE_DIR")
    if not folder:
        return
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
    try:
        os.makedirs(folder, exist_ok=True)
        save_profile(os.path.join(folder, f"infini-profile-rank{rank}-{os.getpid()}.json"))
    except (OSError, RuntimeError) as error:
        _log.logger.warning("the profile was not written: %s", error)


atexit.register(_save_at_exit)
