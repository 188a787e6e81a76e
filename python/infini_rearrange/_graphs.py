"""Tells the library what torch_npu captures: graphs, their task groups, updates and replays.

torch_npu has no way to ask "inside a task group?", so its calls are wrapped where it defines them; who imported its
functions earlier is reached too. Nothing here touches a device.
"""

from __future__ import annotations

import functools
import threading
import weakref

import torch

_ops = torch.ops.infini
_ATTRIBUTE = "_infini_graph"


class Graphs:
    """The library's numbers for torch_npu's graphs and group handles, as long as the graphs live."""

    def __init__(self):
        self._lock = threading.RLock()  # a graph may be collected, and released, while the lock is held
        self._handles: dict[int, list[object]] = {}
        self._groups: dict[object, int] = {}
        self._capturing = 0

    def begin(self, npu_graph) -> None:
        """A capture has begun. What is kept for the graph is freed when it is reset or collected."""
        number = _ops._graph_begun()
        with self._lock:
            self._handles[number] = []
            self._capturing = number
        setattr(npu_graph, _ATTRIBUTE, number)
        # At exit nothing is released: torch_npu may be gone by then.
        weakref.finalize(npu_graph, self.release, number).atexit = False

    def end(self, npu_graph) -> None:
        """The capture has ended well."""
        _abandon()
        with self._lock:
            self._capturing = 0
        _ops._graph_ended(number_of(npu_graph))

    def forget(self, npu_graph) -> None:
        """The graph can no longer be replayed."""
        _abandon()
        self.release(npu_graph.__dict__.pop(_ATTRIBUTE, 0))

    def release(self, number: int) -> None:
        """Frees what was kept for a graph; more than once does no harm."""
        with self._lock:
            handles = self._handles.pop(number, None)
            if handles is None:
                return
            for handle in handles:
                self._groups.pop(handle, None)
            if self._capturing == number:
                self._capturing = 0
        _ops._graph_released(number)

    def add_group(self, handle, group: int) -> None:
        """A task group of the graph under capture has this handle."""
        with self._lock:
            if group and self._capturing:
                self._handles[self._capturing].append(handle)
                self._groups[handle] = group

    def group(self, handle) -> int:
        """The library's number of a group, 0 if it is not known."""
        return self._groups.get(handle, 0)


def number_of(npu_graph) -> int:
    return npu_graph.__dict__.get(_ATTRIBUTE, 0)


_graphs = Graphs()


class _Prepared(threading.local):
    """The handler that prepared the call of this thread; one that it hands on to leaves the call alone."""

    handler: type | None = None


_prepared = _Prepared()


def _abandon() -> None:
    _prepared.handler = None
    _ops._graph_abandon()


def _wrap_graph_class(module) -> None:
    graph_class = module.NPUGraph
    capture_begin, capture_end = graph_class.capture_begin, graph_class.capture_end
    replay, reset = graph_class.replay, graph_class.reset

    @functools.wraps(capture_begin)
    def begin(self, *args, **kwargs):
        _wrap_handlers(module)  # here, since a server may have registered its own
        capture_begin(self, *args, **kwargs)
        _graphs.forget(self)
        _graphs.begin(self)

    @functools.wraps(capture_end)
    def end(self, *args, **kwargs):
        try:
            capture_end(self, *args, **kwargs)
        except BaseException:
            _graphs.forget(self)
            raise
        _graphs.end(self)

    @functools.wraps(replay)
    def counted_replay(self, *args, **kwargs):
        replay(self, *args, **kwargs)
        _ops._graph_replayed(number_of(self))

    @functools.wraps(reset)
    def releasing_reset(self, *args, **kwargs):
        reset(self, *args, **kwargs)
        _graphs.forget(self)

    graph_class.capture_begin, graph_class.capture_end = begin, end
    graph_class.replay, graph_class.reset = counted_replay, releasing_reset


def _wrap_groups(module) -> None:
    # The functions of the extension, which the public ones look up in their module when called; releases without them
    # get the public ones wrapped.
    private = hasattr(module, "_graph_task_group_begin")

    def wrap(name: str, make) -> None:
        name = "_" + name if private else name
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, functools.wraps(original)(make(original)))

    def group_begin(original):
        def begin(stream):
            original(stream)
            _ops._graph_group_begun(stream.stream_id)

        return begin

    def group_end(original):
        def end(stream):
            group = _ops._graph_group_ended()
            handle = original(stream)
            _graphs.add_group(handle, group)
            return handle

        return end

    def update_begin(original):
        def begin(stream, handle):
            original(stream, handle)
            _ops._graph_update_begun(stream.stream_id, _graphs.group(handle))

        return begin

    def update_end(original):
        def end(stream):
            _ops._graph_update_ended()
            original(stream)

        return end

    wrap("graph_task_group_begin", group_begin)
    wrap("graph_task_group_end", group_end)
    wrap("graph_task_update_begin", update_begin)
    wrap("graph_task_update_end", update_end)


def _prepare(func, args, kwargs):
    """Arguments with copies in place of what does not meet the contracts; the library keeps them with the graph."""
    places, tensors = [], []
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        if isinstance(value, torch.Tensor):
            places.append((position, argument.name, -1))
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            for element, tensor in enumerate(value):
                if isinstance(tensor, torch.Tensor):
                    places.append((position, argument.name, element))
                    tensors.append(tensor)
    stand_ins = _ops._graph_prepare(
        func._schema.name,
        func._schema.overload_name,
        tensors,
        [position for position, _, _ in places],
        [element for _, _, element in places],
    )
    args, kwargs = list(args), dict(kwargs)
    for (position, name, element), tensor, stand_in in zip(places, tensors, stand_ins, strict=False):
        if stand_in is tensor:
            continue
        holder, key = (args, position) if position < len(args) else (kwargs, name)
        if element < 0:
            holder[key] = stand_in
        else:
            elements = list(holder[key])
            elements[element] = stand_in
            holder[key] = elements
    return tuple(args), kwargs


def _finish(result):
    """The result with the caller's own tensors in place of stand-ins, and what was written brought back."""
    if isinstance(result, torch.Tensor):
        return _ops._graph_finish([result])[0]
    if isinstance(result, (list, tuple)) and all(isinstance(tensor, torch.Tensor) for tensor in result):
        return type(result)(_ops._graph_finish(list(result)))
    _ops._graph_finish([])
    return result


def _rearranging(handler):
    """A handler that makes the copies of a call before the group opens, so that a copy is what gets recorded."""

    class Rearranging(handler):
        _infini_original = handler

        @classmethod
        def prepare_capture(cls, func, args, kwargs):
            if _prepared.handler is not None:
                return super().prepare_capture(func, args, kwargs)
            args, kwargs = _prepare(func, args, kwargs or {})
            _prepared.handler = Rearranging
            try:
                return super().prepare_capture(func, args, kwargs)
            except BaseException:
                _abandon()
                raise

        @classmethod
        def postprocess_result(cls, result, kwargs):
            result = super().postprocess_result(result, kwargs)
            if _prepared.handler is not Rearranging:
                return result
            _prepared.handler = None
            return _finish(result)

    Rearranging.__name__ = handler.__name__
    Rearranging.__qualname__ = handler.__qualname__
    Rearranging.__module__ = handler.__module__
    Rearranging.__doc__ = handler.__doc__
    return Rearranging


def _wrap_handlers(module) -> None:
    # Releases without a registry open their groups themselves, which then are like any other group.
    handlers = getattr(module, "_NPU_GRAPH_OP_HANDLERS", {})
    wrapped: dict[type, type] = {}
    for name, handler in handlers.items():
        if not hasattr(handler, "_infini_original"):
            if handler not in wrapped:
                wrapped[handler] = _rearranging(handler)
            handlers[name] = wrapped[handler]


def watch() -> None:
    """Wraps what torch_npu captures with, once a process."""
    import torch_npu.npu.graphs as module

    if getattr(module, "_infini_watched", False):
        return
    module._infini_watched = True
    _wrap_graph_class(module)
    _wrap_groups(module)
