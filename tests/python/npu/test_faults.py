"""Failures of the device half-way: the error arrives as it is, nothing is half written, and the next call works."""

import attention_cases as attention
import cases
import infini_rearrange as ir
import pytest
import strided
import torch

DEVICE = "npu:0"
FIA_FIRST_PHASE = "aclnnFusedInferAttentionScoreV5GetWorkspaceSize"


def strided_step():
    scenario = attention.SCENARIOS["mla_tnd"]
    tensors = scenario.make()
    for name in ("key", "value", "key_rope"):
        tensors[name] = strided.wider_rows(tensors[name])
    return scenario, tensors


def right(scenario, tensors, operator=attention.OPERATORS["v1"]):
    attention.assert_close(operator(tensors, scenario.options), scenario.reference(attention.on_host(tensors)))


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_copy_fails(nth, hooked, sim):
    scenario, tensors = strided_step()
    before = {name: cases.contents(tensor) for name, tensor in tensors.items()}
    sim.reset()
    sim.fault(f"aclnnInplaceCopyGetWorkspaceSize:{nth}:161002")
    with pytest.raises(RuntimeError, match=r"161002") as raised:
        attention.OPERATORS["v1"](tensors, scenario.options)
    assert "aclnnInplaceCopy" in str(raised.value)
    assert not isinstance(raised.value, ir.NonContiguousError)
    assert sim.launches(*sim.FIA) == 0
    assert sim.copies() == nth - 1
    sim.fault(None)
    right(scenario, tensors)
    assert {name: cases.contents(tensor) for name, tensor in tensors.items()} == before


@pytest.mark.parametrize("operator", attention.OPERATORS.values(), ids=attention.OPERATORS)
def test_the_operator_fails_after_its_inputs_were_copied(operator, hooked, sim):
    scenario, tensors = strided_step()
    target = strided.transposed(torch.full_like(tensors["query"], 7))
    lse = torch.empty(1, dtype=target.dtype, device=target.device)
    torch.npu.synchronize()
    sim.reset()
    # The workspace query of .out enters the first phase too.
    sim.fault(f"{FIA_FIRST_PHASE}:{2 if operator.out else 1}:561002")
    with pytest.raises(RuntimeError, match="561002") as raised:
        operator(tensors, scenario.options, [target, lse])
    assert "FusedInferAttentionScore" in str(raised.value)
    assert not isinstance(raised.value, ir.NonContiguousError)
    # key, value, key_rope, and what `out` holds.
    assert sim.copies() == (4 if operator.out else 3)
    sim.fault(None)
    # No result: the caller's own tensor has not been written.
    assert (target.cpu() == 7).all()
    right(scenario, tensors, operator)


def test_a_copy_back_fails(hooked, sim):
    scenario, tensors = attention.SCENARIOS["mla_tnd"], attention.SCENARIOS["mla_tnd"].make()
    target = strided.transposed(torch.full_like(tensors["query"], 7))
    into = [target, torch.empty(1, dtype=target.dtype, device=target.device)]
    sim.reset()
    sim.fault("aclnnInplaceCopyGetWorkspaceSize:1:161002")
    with pytest.raises(RuntimeError, match="161002"):
        attention.OPERATORS["v1.out"](tensors, scenario.options, into)
    sim.fault(None)
    assert (target.cpu() == 7).all()
    attention.OPERATORS["v1.out"](tensors, scenario.options, into)
    attention.assert_close(target, scenario.reference(attention.on_host(tensors)))


@pytest.mark.parametrize(("fails", "task_queue"), [("key", "1"), ("all", "0")])
def test_no_memory_for_the_copy(fails, task_queue, fresh):
    """A process of its own: its allocator must have nothing cached that could hold the copy."""
    found = fresh(
        f"""
        import ctypes, json, os, sys
        sys.path[:0] = ["tests/python/npu", "tests/python"]
        import torch, strided, attention_cases as attention
        import infini_rearrange as ir

        sim = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
        sim.cann_sim_calls.restype = ctypes.c_uint64
        ir.install()
        # More than the 10 MiB from which the allocator gives a tensor memory of its own.
        big = strided.wider_rows(torch.ones(6144, 8, 128, dtype=torch.bfloat16, device="npu:0"))
        query = torch.ones(8, 8, 128, dtype=torch.bfloat16, device="npu:0")
        value = strided.wider_rows(big) if {fails!r} == "all" else torch.ones_like(big)
        options = dict(num_heads=8, num_key_value_heads=8, input_layout="TND", actual_seq_lengths=[8],
                       actual_seq_lengths_kv=[64])
        torch.npu.synchronize()
        torch.npu.empty_cache()
        sim.cann_sim_fault(b"aclrtMalloc:1+:207001,aclrtMallocAlign32:1+:207001")
        found = {{}}
        try:
            torch.ops.npu.npu_fused_infer_attention_score(query, big, value, **options)
        except torch.OutOfMemoryError as error:
            found["raised"], found["text"] = type(error).__name__, str(error)
        except Exception as error:
            found["raised"], found["text"] = repr(type(error)), str(error)
        torch.npu.synchronize()
        names = ("aclnnInplaceCopy", "aclnnFusedInferAttentionScoreV3", "aclnnFusedInferAttentionScoreV5")
        before = [sim.cann_sim_calls(name.encode()) for name in names[1:]]
        sim.cann_sim_fault(None)
        result = torch.ops.npu.npu_fused_infer_attention_score(query, big, value, **options)[0].cpu()
        found |= {{"launched": before, "next": bool((result == 1).all())}}
        print(json.dumps(found))
        """,
        TASK_QUEUE_ENABLE=task_queue,
    )
    assert found["raised"] == "OutOfMemoryError", found
    assert "out of memory" in found["text"]
    assert found["launched"] == [0, 0]
    assert found["next"] is True


def test_a_failing_rearrange_leaves_the_destination(sim):
    x, out = torch.ones(4, 6, device=DEVICE), torch.full((4, 6), 7.0, device=DEVICE).t()
    sim.reset()
    sim.fault("aclnnInplaceCopyGetWorkspaceSize:1:161002")
    with pytest.raises(RuntimeError, match="161002"):
        ir.rearrange(x.t(), out=out)
    assert (out.cpu() == 7).all()
    ir.rearrange(x.t(), out=out)
    assert (out.cpu() == 1).all()


def test_a_copy_fails_on_the_device(fresh):
    """The call succeeds and the task fails: reported where torch_npu reports it, and no call is answered by garbage."""
    found = fresh(
        """
        import json, torch, infini_rearrange as ir
        x = torch.arange(24.0, device="npu:0").view(4, 6)
        torch.npu.synchronize()
        found = {}
        try:
            ir.rearrange(x.t())
            torch.npu.synchronize()
        except RuntimeError as error:
            found["text"] = str(error)
        found["next"] = ir.rearrange(x.t()).cpu().sum().item()
        print(json.dumps(found))
        """,
        TASK_QUEUE_ENABLE="0",
        CANN_SIM_FAULT="aclnnInplaceCopy.task:1:507035",
    )
    assert "507035" in found["text"]
    assert found["next"] == 276


ROTARY = ("aclnnApplyRotaryPosEmb", "aclnnApplyRotaryPosEmbV2")


def rotary_step():
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(torch.float16).to(DEVICE)  # noqa: E731
    query = strided.wider_rows(draw(2, 6, 4, 128))
    key = strided.wider_rows(draw(2, 6, 2, 128))
    return query, key, draw(2, 6, 1, 128), draw(2, 6, 1, 128)


@pytest.mark.parametrize("nth", [1, 2])
def test_in_place_arguments_when_a_copy_in_fails(nth, hooked, sim):
    step = rotary_step()
    before = [cases.contents(tensor) for tensor in step]
    sim.reset()
    sim.fault(f"aclnnInplaceCopyGetWorkspaceSize:{nth}:161002")
    with pytest.raises(RuntimeError, match="161002"):
        torch.ops.npu.npu_apply_rotary_pos_emb(*step)
    assert sim.launches(*ROTARY) == 0
    sim.fault(None)
    assert [cases.contents(tensor) for tensor in step] == before
    torch.ops.npu.npu_apply_rotary_pos_emb(*step)
    assert cases.contents(step[0]) != before[0]


def test_in_place_arguments_when_the_operator_fails(hooked, sim, total):
    step = rotary_step()
    before = [cases.contents(tensor) for tensor in step]
    sim.reset()
    sim.fault(",".join(f"{name}GetWorkspaceSize:1:561002" for name in ROTARY))
    with pytest.raises(RuntimeError, match="561002"):
        torch.ops.npu.npu_apply_rotary_pos_emb(*step)
    assert sim.copies() == 2
    assert total("copied_back") == 0
    sim.fault(None)
    assert [cases.contents(tensor) for tensor in step] == before
    torch.ops.npu.npu_apply_rotary_pos_emb(*step)
    assert total("copied_back") == 2
    assert cases.contents(step[0]) != before[0]
