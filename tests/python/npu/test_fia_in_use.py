"""Fused attention through the hook as servers call it: in inference mode, on other streams, compiled, wrapped."""

import attention_cases as attention
import infini_rearrange as ir
import pytest
import strided
import torch

SITE = "npu_fused_infer_attention_score"
V1 = attention.OPERATORS["v1"]


@pytest.fixture
def step():
    scenario = attention.SCENARIOS["mla_tnd"]
    tensors = scenario.make()
    tensors["key"] = strided.wider_rows(tensors["key"])
    tensors["key_rope"] = strided.expand(tensors["key_rope"])
    return scenario, tensors


def check(scenario, tensors, result):
    attention.assert_close(result, scenario.reference(attention.on_host(tensors)))


def test_in_inference_mode(step, hooked, site):
    scenario, _ = step
    with torch.inference_mode():
        tensors = scenario.make()
        tensors["key"] = strided.transposed(tensors["key"])
        target = strided.transposed(torch.zeros_like(tensors["query"]))
        into = [target, torch.empty(1, dtype=target.dtype, device=target.device)]
        attention.OPERATORS["v1.out"](tensors, scenario.options, into)
        check(scenario, tensors, target)
    assert (site(f"{SITE}.key")["copied"], site(f"{SITE}.out")["copied_back"]) == (1, 1)


def test_both_names_of_the_operator(step, hooked, site):
    import torch_npu

    scenario, tensors = step
    for number, op in enumerate(
        (torch_npu.npu_fused_infer_attention_score, torch.ops.npu.npu_fused_infer_attention_score)
    ):
        check(scenario, tensors, op(**tensors, **scenario.options)[0])
        assert site(f"{SITE}.key")["copied"] == number + 1


def test_copies_are_made_on_the_callers_stream(step, hooked):
    """The key is still being computed there when the call is made, and is gone again when the next one is."""
    scenario, tensors = step
    stream, base, results = torch.npu.Stream(), tensors["key"], []
    torch.npu.synchronize()
    with torch.npu.stream(stream):
        for factor in range(8):
            call = tensors | {"key": strided.wider_rows(base * factor)}
            results.append((V1(call, scenario.options), {name: tensor.clone() for name, tensor in call.items()}))
            call["key"].zero_()
    stream.synchronize()
    for result, call in results:
        check(scenario, call, result)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_in_a_compiled_step(backend, step, hooked, site):
    scenario, tensors = step

    def layer(query, key):
        return V1(tensors | {"query": query, "key": key}, scenario.options) * 2

    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    for calls in (1, 2):
        check(scenario, tensors, compiled(tensors["query"], tensors["key"]) / 2)
        assert site(f"{SITE}.key")["copied"] == calls
    with ir.policy("strict"), pytest.raises(RuntimeError, match=f"{SITE}.key"):
        compiled(tensors["query"], tensors["key"])


def test_one_view_for_key_and_value_is_copied_once(step, hooked, sim, site):
    scenario, tensors = step
    tensors["value"] = tensors["key"]
    tensors["key_rope"] = tensors["key_rope"].contiguous()
    sim.reset()
    result = V1(tensors, scenario.options)
    assert sim.copies() == site(f"{SITE}.key")["copied"] + site(f"{SITE}.value")["copied"] == 1
    check(scenario, tensors, result)


def test_a_wrapped_call_site(step, sim, site):
    scenario, tensors = step
    packet = torch.ops.npu.npu_fused_infer_attention_score
    wrapped = ir.wrap(packet, site="model.attention")
    sim.reset()
    result = wrapped(**tensors, **scenario.options)[0]
    assert sim.copies() == 2
    check(scenario, tensors, result)
    assert (site("model.attention.key")["copied"], site(f"{SITE}.key")["copied"]) == (1, 0)
    strict = ir.wrap(packet, site="model.attention", policy="strict")
    with pytest.raises(ir.NonContiguousError, match=r"model\.attention\.key"):
        strict(**tensors, **scenario.options)
    with pytest.raises(RuntimeError, match="EZ0037"):
        packet(**tensors, **scenario.options)


def test_one_site_may_be_strict(step, hooked, site):
    scenario, tensors = step
    with ir.policy(f"auto,{SITE}.key=strict"), pytest.raises(ir.NonContiguousError, match=f"{SITE}.key "):
        V1(tensors, scenario.options)
    with ir.policy(f"strict,{SITE}.key*=auto"):
        check(scenario, tensors, V1(tensors, scenario.options))
    assert site(f"{SITE}.key")["copied"] == site(f"{SITE}.key_rope")["copied"] == 1


def test_odd_strides_of_size_one_dims(hooked, sim, total):
    """One key head with a stride that means nothing: contiguous in memory, so nothing is copied or refused."""
    scenario = attention.dense("BSND", 4, 1, torch.bfloat16, "one head")
    tensors = scenario.make()
    key = tensors["key"]
    tensors["key"] = key.as_strided(key.shape, (key.stride(0), key.stride(1), 999, 1))
    sim.reset()
    with ir.policy("strict"):
        result = V1(tensors, scenario.options)
    assert sim.copies() == total("copied") == total("hidden") == 0
    check(scenario, tensors, result)


def test_no_tokens(hooked, sim):
    """A dummy run of a server without tokens must not launch a copy."""
    empty = torch.empty(0, 2, 192, dtype=torch.bfloat16, device="npu:0")[..., :128]
    sim.reset()
    try:
        torch.ops.npu.npu_fused_infer_attention_score(
            empty,
            empty,
            empty,
            num_heads=2,
            num_key_value_heads=2,
            input_layout="TND",
            actual_seq_lengths=[0],
            actual_seq_lengths_kv=[0],
        )
    except ir.NonContiguousError:
        raise
    except RuntimeError:
        pass  # whether the operator takes it is its own business
    assert sim.launches("aclnnInplaceCopy") == 0
