"""What torch_npu users get for doing in a capture what is not allowed there: run with
`tests/cann-sim/run .venv/bin/python -m pytest tests/python/sim/test_sim_capture_errors.py`.

The calls all happen in one process of their own, since a failed capture leaves torch_npu's allocator in an odd state.
The codes of the C functions themselves are tested in tests/cann-sim/tests/capture_rules.rs.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch")
if "CANN_SIM_LIBRARY" not in os.environ:
    pytest.skip("needs tests/cann-sim/run", allow_module_level=True)

CALLS = """
    import json, torch

    x, pageable, pinned = torch.ones(8).npu(), torch.ones(8), torch.ones(8).pin_memory()
    stream, other = torch.npu.Stream(), torch.npu.Stream()
    outside = torch.npu.Event()
    outside.record()
    events = [torch.npu.Event(enable_timing=True) for _ in range(2)]
    torch.npu.synchronize()

    def recorded():
        for event in events:
            event.record()
        return events

    def fork():
        other.wait_stream(stream)
        with torch.npu.stream(other):
            x.add_(1)

    calls = {
        "stream.synchronize": lambda: stream.synchronize(),
        "stream.query": lambda: stream.query(),
        "npu.synchronize": lambda: torch.npu.synchronize(),
        "empty_cache": lambda: torch.npu.empty_cache(),
        "cpu": lambda: x.cpu(),
        "item": lambda: x[0].item(),
        "nonzero": lambda: x.nonzero(),
        "copy from pageable memory": lambda: x.copy_(pageable),
        "asynchronous copy from pageable memory": lambda: x.copy_(pageable, non_blocking=True),
        "copy from pinned memory": lambda: x.copy_(pinned),
        "event.synchronize": lambda: recorded()[0].synchronize(),
        "event.query": lambda: recorded()[0].query(),
        "elapsed_time": lambda: recorded()[0].elapsed_time(events[1]),
        "waiting for an event from outside": lambda: outside.wait(stream),
        "unjoined": fork,
        "asynchronous copy from pinned memory": lambda: x.copy_(pinned, non_blocking=True),
    }

    def outcome(call):
        try:
            call()
            return "allowed"
        except RuntimeError as error:
            return int(str(error).split("error code is ")[1][:6])

    found = {}
    for name, call in calls.items():
        with torch.npu.stream(stream):
            graph = torch.npu.NPUGraph()
            graph.capture_begin()
            y = x + 1
            during = outcome(call)
            ended = outcome(graph.capture_end)
            again = torch.npu.NPUGraph()
            again.capture_begin()
            y = x * 3
            again.capture_end()
        torch.npu.synchronize()
        x.fill_(2)
        again.replay()
        torch.npu.synchronize()
        found[name] = [during, ended, y[0].item()]
    print(json.dumps(found))
"""


def run(code, **environment):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def found():
    # Without the queue, since an error inside it makes torch_npu drop everything that is queued later.
    return json.loads(run(CALLS, TASK_QUEUE_ENABLE="0")[-1])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("stream.synchronize", 107027),
        ("stream.query", 107027),
        ("npu.synchronize", 107027),
        ("empty_cache", 107027),
        ("cpu", 107030),
        ("item", 107027),
        ("nonzero", 107027),
        ("copy from pageable memory", 107030),
        ("asynchronous copy from pageable memory", 107041),
        ("copy from pinned memory", 107030),
        ("event.synchronize", 107028),
        ("event.query", 107028),
        ("elapsed_time", 107028),
        ("waiting for an event from outside", 107024),
    ],
)
def test_a_forbidden_call_fails_and_spoils_the_capture(found, call, code):
    assert found[call] == [code, 507903, 6.0]


def test_a_branch_that_is_not_joined_fails_the_end(found):
    assert found["unjoined"] == ["allowed", 107025, 6.0]


def test_an_asynchronous_copy_of_pinned_memory_is_captured(found):
    assert found["asynchronous copy from pinned memory"] == ["allowed", "allowed", 6.0]


def test_synchronous_copies_are_allowed_in_relaxed_mode_only():
    code = """
        import threading, torch
        x, stream = torch.ones(8).npu(), torch.npu.Stream()
        pinned = torch.full((8,), 5.0).pin_memory()

        def copy(into):
            try:
                # On the default stream, which captures nothing.
                with torch.npu.stream(torch.npu.default_stream()):
                    x.copy_(pinned)
                into.append("allowed")
            except RuntimeError as error:
                into.append(str(error).split("error code is ")[1][:6])

        for mode in ("global", "thread_local", "relaxed"):
            for elsewhere in (False, True):
                results = []
                with torch.npu.stream(stream):
                    graph = torch.npu.NPUGraph()
                    graph.capture_begin(capture_error_mode=mode)
                    y = torch.zeros(8, device="npu") + 1
                    if elsewhere:
                        thread = threading.Thread(target=copy, args=(results,))
                        thread.start()
                        thread.join()
                    else:
                        copy(results)
                    try:
                        graph.capture_end()
                        results.append("graph")
                    except RuntimeError:
                        results.append("none")
                print(mode, elsewhere, *results)
    """
    assert run(code, TASK_QUEUE_ENABLE="0")[-6:] == [
        "global False 107030 none",
        "global True 107030 none",
        "thread_local False 107030 none",
        "thread_local True allowed graph",
        "relaxed False allowed graph",
        "relaxed True allowed graph",
    ]
