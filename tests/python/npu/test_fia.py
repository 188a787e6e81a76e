"""Fused attention with every tensor strided in every way: right under auto and warn, refused under strict."""

import logging

import attention_cases as attention
import cases
import infini_rearrange as ir
import platform_facts as facts
import pytest
import strided
import torch

pytestmark = pytest.mark.every_platform

OWN = ("key", "value", "key_rope")  # what newer releases of the operator no longer copy
# In turn over the arguments, so that a call with all of them has all kinds.
MIX = {
    "query": strided.wider_rows,
    "key": strided.transposed,
    "value": strided.every_other,
    "query_rope": strided.wider_rows,
    "key_rope": strided.expand,
    "atten_mask": strided.transposed,
    "block_table": strided.every_other,
}
# A paged cache is never copied; test_layout_cases.py has it strided.
CALLS = [
    (scenario, argument)
    for scenario in attention.SCENARIOS
    for argument in [*MIX, "all"]
    if argument in ("all", *attention.SCENARIOS[scenario].make()) and not (scenario == "paged" and argument in OWN)
]
every_call = pytest.mark.parametrize(("scenario", "argument"), CALLS, ids=lambda name: name)
every_operator = pytest.mark.parametrize("operator", attention.OPERATORS.values(), ids=attention.OPERATORS)


def arguments(scenario, argument, kind=None):
    """The scenario's tensors with one of them strided, or all that may be; and the names of the strided ones."""
    tensors = scenario.make()
    names = [argument]
    if argument == "all":
        names = [name for name in tensors if not (scenario.name == "paged" and name in OWN)]
    strides = {name: (kind or MIX[name])(tensors[name]) for name in names}
    assert not any(view.is_contiguous() for view in strides.values())
    return tensors | strides, names


def same_values(tensors):
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def contents(tensors):
    """The whole storages: what lies between the elements must not change either."""
    whole = {n: torch.as_strided(t, (t.untyped_storage().nbytes() // t.itemsize,), (1,), 0) for n, t in tensors.items()}
    return {name: cases.contents(tensor) for name, tensor in whole.items()}


@every_operator
@pytest.mark.parametrize("name", attention.SCENARIOS)
def test_contiguous_calls_agree_with_float64_and_cost_nothing(name, operator, hooked, sim, total):
    scenario = attention.SCENARIOS[name]
    tensors = scenario.make()
    sim.reset()
    attention.assert_close(operator(tensors, scenario.options), scenario.reference(attention.on_host(tensors)))
    assert sim.copies() == total("copied") == total("hidden") == total("copied_back") == 0
    assert sim.hidden() == (0, 0)
    assert total("contiguous") == total("calls") > 0


@every_operator
@every_call
def test_strided_arguments_give_the_result_of_contiguous_ones(scenario, argument, operator, hooked, sim, site, caplog):
    scenario = attention.SCENARIOS[scenario]
    tensors, names = arguments(scenario, argument)
    expected = operator(same_values(tensors), scenario.options)
    before = contents(tensors)
    for policy in ("auto", "warn"):
        ir.reset_profile()
        caplog.clear()
        sim.reset()
        with ir.policy(policy), caplog.at_level(logging.WARNING, "infini_rearrange"):
            result = operator(tensors, scenario.options)
        copies, (hidden, hidden_bytes) = sim.copies(), sim.hidden()
        attention.assert_close(result, expected.cpu())
        attention.assert_close(result, scenario.reference(attention.on_host(tensors)))
        assert contents(tensors) == before
        figures = {name: site(f"{operator.site}.{name}") for name in tensors}
        copied = {name for name, one in figures.items() if one["copied"]}
        assert copied == {name for name in names if name in OWN and facts.FUSED_ATTENTION != facts.COPIES}
        assert copies == len(copied) == sum(one["copied"] for one in figures.values())
        assert hidden == len(names) - len(copied) == sum(one["hidden"] for one in figures.values())
        assert hidden_bytes == sum(one["bytes_hidden"] for one in figures.values())
        for name in names:
            assert figures[name]["bytes_copied"] + figures[name]["bytes_hidden"] == tensors[name].nbytes
        said = "\n".join(record.getMessage() for record in caplog.records)
        for name in names:
            assert (f"{operator.site}.{name} " in said) == (policy == "warn")


@pytest.mark.parametrize("kind", strided.KINDS.values(), ids=strided.KINDS)
@pytest.mark.parametrize("argument", ["query", "key", "value", "query_rope", "key_rope", "all"])
def test_every_kind_of_stride(argument, kind, hooked):
    scenario, operator = attention.SCENARIOS["mla_tnd"], attention.OPERATORS["v1"]
    tensors = scenario.make()
    for name in [argument] if argument != "all" else [name for name in tensors if name != "atten_mask"]:
        tensors[name] = kind(tensors[name])
    attention.assert_close(operator(tensors, scenario.options), scenario.reference(attention.on_host(tensors)))


@every_operator
@every_call
def test_strict_refuses_before_anything_is_launched(scenario, argument, operator, hooked, sim, site):
    scenario = attention.SCENARIOS[scenario]
    tensors, names = arguments(scenario, argument)
    sim.reset()
    with ir.policy("strict"), pytest.raises(ir.NonContiguousError) as raised:
        operator(tensors, scenario.options)
    assert sim.launches(*sim.FIA, "aclnnInplaceCopy") == 0
    for name in names:
        assert f"{operator.site}.{name} " in str(raised.value)
    refused = sum(site(f"{operator.site}.{name}")["refused"] for name in names)
    # The .out form asks for the workspace first, and that is refused without counting.
    assert refused == (0 if operator.out else len(names))


@every_operator
@pytest.mark.parametrize("name", attention.SCENARIOS)
def test_a_contiguous_at_the_call_site_costs_no_second_copy(name, operator, hooked, sim, total):
    scenario = attention.SCENARIOS[name]
    tensors, names = arguments(scenario, "all")
    sim.reset()
    by_hand = same_values(tensors)
    result = operator(by_hand, scenario.options)
    assert sim.copies() == len(names)
    assert sim.hidden() == (0, 0)
    assert total("copied") == total("hidden") == 0
    attention.assert_close(result, scenario.reference(attention.on_host(tensors)))


@pytest.mark.parametrize(
    "kind", [strided.wider_rows, strided.transposed, strided.every_other], ids=lambda k: k.__name__
)
@pytest.mark.parametrize("name", ["mla_tnd", "bsnd", "bnsd", "bsh", "paged"])
@pytest.mark.parametrize("operator", [o for o in attention.OPERATORS.values() if o.out], ids=["v1.out", "v2.out"])
def test_strided_results(operator, name, kind, hooked, sim, site):
    scenario = attention.SCENARIOS[name]
    tensors = scenario.make()
    target = kind(torch.zeros_like(tensors["query"]))
    assert not target.is_contiguous()
    base = torch.as_strided(target, (target.untyped_storage().nbytes() // target.itemsize,), (1,), 0)
    gaps = torch.ones(base.shape, dtype=torch.bool)
    gaps.as_strided(target.shape, target.stride(), target.storage_offset()).fill_(False)
    base.fill_(7)
    lse = torch.empty(1, dtype=target.dtype, device=target.device)
    sim.reset()
    assert operator(tensors, scenario.options, [target, lse]) is target
    attention.assert_close(target, scenario.reference(attention.on_host(tensors)))
    assert (base.cpu()[gaps] == 7).all()
    figures = site(f"{operator.site}.out")
    # Copied in too: what the operator leaves alone, such as rows beyond the actual lengths, must come back as it was.
    assert (figures["copied"], figures["copied_back"]) == (1, 1)
    assert figures["bytes_copied_back"] == target.nbytes


def test_strided_results_with_strided_inputs_and_strict(hooked, sim):
    scenario, operator = attention.SCENARIOS["mla_tnd"], attention.OPERATORS["v1.out"]
    tensors, _ = arguments(scenario, "all")
    target = strided.transposed(torch.zeros_like(tensors["query"]))
    into = [target, torch.empty(1, dtype=target.dtype, device=target.device)]
    operator(tensors, scenario.options, into)
    attention.assert_close(target, scenario.reference(attention.on_host(tensors)))
    held = cases.contents(target)
    sim.reset()
    with ir.policy("strict"), pytest.raises(ir.NonContiguousError, match=r"npu_fused_infer_attention_score\.out"):
        operator(scenario.make(), scenario.options, into)
    # The workspace query had nothing to refuse; the operator itself was not asked, and nothing was written.
    assert sim.calls(*sim.FIA) == sim.launches("aclnnInplaceCopy") == 0
    assert cases.contents(target) == held


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("argument", ["key", "value", "key_rope"])
def test_without_the_hook(argument, version, sim):
    """The world the package is for."""
    scenario, operator = attention.SCENARIOS["mla_tnd"], attention.OPERATORS[f"v{version}"]
    tensors, _ = arguments(scenario, argument, strided.wider_rows)
    expected = scenario.reference(attention.on_host(tensors))
    sim.reset()
    if facts.FUSED_ATTENTION == facts.REFUSES:
        text = "keyRope does not support non-contiguous" if argument == "key_rope" else f"{argument} tensor must be"
        with pytest.raises(RuntimeError, match=text) as raised:
            operator(tensors, scenario.options).cpu()
        assert "EZ0037" in str(raised.value)
        assert not isinstance(raised.value, ir.NonContiguousError)
        return
    difference = (operator(tensors, scenario.options).cpu().double() - expected).abs().max()
    if facts.FUSED_ATTENTION == facts.MISREADS:
        assert difference > 0.2
        assert sim.hidden() == (0, 0)
    else:
        assert difference < attention.ABSOLUTE
        assert sim.hidden() == (1, tensors[argument].nbytes)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", attention.SCENARIOS)
def test_the_workspace_query_copies_and_counts_nothing(name, version, hooked, sim, total):
    scenario, operator = attention.SCENARIOS[name], attention.OPERATORS[f"v{version}.out"]
    tensors, _ = arguments(scenario, "all")
    plain = operator.max_workspace(same_values(tensors), scenario.options)
    sim.reset()
    ir.reset_profile()
    workspace = operator.max_workspace(tensors, scenario.options)
    # What the operator will copy by itself needs room; what is copied before it does not.
    assert workspace.numel() >= plain.numel()
    assert sim.launches("aclnnInplaceCopy") == 0
    assert [total(counter) for counter in ("calls", "copied", "hidden", "passed", "refused", "bytes_copied")] == [0] * 6
    assert [sim.calls(name) for name in sim.FIA] == [0] * 4


def test_off_leaves_everything_to_the_operator(hooked, sim, site):
    scenario, operator = attention.SCENARIOS["mla_tnd"], attention.OPERATORS["v1"]
    tensors, _ = arguments(scenario, "key")
    sim.reset()
    with ir.policy("off"):
        if facts.FUSED_ATTENTION == facts.REFUSES:
            with pytest.raises(RuntimeError, match="key tensor must be contiguous"):
                operator(tensors, scenario.options).cpu()
        else:
            operator(tensors, scenario.options).cpu()
    assert sim.copies() == site(f"{operator.site}.key")["copied"] == 0
    figures = site(f"{operator.site}.key")
    assert (figures["hidden"] if facts.FUSED_ATTENTION == facts.COPIES else figures["passed"]) == 1
