"""Captures with auto_dispatch_capture, as SGLang makes them: copies stand before the groups, updates change lengths."""

import infini_rearrange as ir
import platform_facts as facts
import pytest
import strided
import torch
from capture_cases import COPY, DEVICE, OWN, SITE, Step, capture, litter, refill, replayed, tasks

AUTO = {"auto_dispatch_capture": True}
PLATFORM_COPIES = facts.FUSED_ATTENTION == facts.COPIES
ARGUMENTS = {
    "mla_tnd": ("query", "key", "value", "query_rope", "key_rope", "atten_mask", "all", "none"),
    "bsh": ("query", "key", "value", "atten_mask", "all", "none"),
    "paged": ("query", "block_table", "all"),
}
# Cheap ones that show all that depends on the platform.
EVERYWHERE = {("mla_tnd", "all", "v1"), ("mla_tnd", "key", "v2.out"), ("paged", "all", "v1.out"), ("bsh", "all", "v2")}
CALLS = [
    pytest.param(*call, marks=[pytest.mark.every_platform] if call in EVERYWHERE else [])
    for scenario, arguments in ARGUMENTS.items()
    for argument in arguments
    for operator in ("v1", "v1.out", "v2", "v2.out")
    for call in [(scenario, argument, operator)]
]
every_call = pytest.mark.parametrize(("scenario", "argument", "operator"), CALLS)
TURNS = [("update first", 0), ("update first", 1), ("replay first", 0), ("replay first", 1)]


def turned(graph, step, order, turn):
    """A replay with these lengths, in either order of update and replay."""
    if order == "update first":
        graph.update(cpu_update_input=[step.lengths[turn]])
        graph.replay()
    else:
        graph.replay()
        graph.update(cpu_update_input=[step.lengths[turn]])
    torch.npu.synchronize()


@every_call
def test_every_replay_gives_what_an_eager_call_gives(scenario, argument, operator, hooked, sim, site):
    step = Step.of(scenario, argument, operator)
    sim.reset()
    graph, result = capture(step.call, **AUTO)
    assert sim.hidden() == (0, 0)
    copied = step.copied(PLATFORM_COPIES)
    kinds = tasks(graph)
    assert [kind for kind, _ in kinds] == ["task"] * len(copied) + ["group"]
    assert [name for _, name in kinds[:-1]] == [COPY] * len(copied)
    assert kinds[-1][1] in sim.FIA
    expected = []
    for number, (order, turn) in enumerate(TURNS):
        refill(step.tensors, number)
        turned(graph, step, order, turn)
        expected.append(step.expected(turn))
        assert torch.equal(result.cpu(), expected[-1]), (order, turn)
        if turn == 1:
            refill(step.tensors, number)
            assert not torch.equal(expected[-1], step.expected(0))
    assert sim.hidden()[0] == len(TURNS) * (len(step.names) - len(copied))
    for name in step.tensors:
        figures, nbytes = site(f"{step.operator.site}.{name}"), step.tensors[name].nbytes
        replays = len(TURNS) if name in copied else 0
        hidden = len(TURNS) if name in step.names and name not in copied else 0
        assert (figures["copied"], figures["copied_back"], figures["bytes_copied"]) == (0, 0, 0)
        assert (figures["captured"], figures["replayed"]) == (int(name in copied), replays), name
        assert figures["bytes_replayed"] == replays * nbytes
        assert (figures["hidden"], figures["bytes_hidden"]) == (hidden, hidden * nbytes), name


@pytest.mark.parametrize("operator", ["v1.out", "v2.out"])
@pytest.mark.parametrize("argument", ["none", "all"])
def test_strided_results_are_the_callers_own(argument, operator, hooked, sim, site):
    step = Step.of("mla_tnd", argument, operator)
    into = step.strided_results()
    before = into[0].stride(), into[0].data_ptr()
    packet, options = getattr(torch.ops.npu, step.operator.site), step.operator.options(step.scenario.options)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **AUTO):
        workspace = step.operator.max_workspace(step.tensors, step.scenario.options)
        results = packet.out(**step.tensors, **options, workspace=workspace, out=into)
    assert [result is mine for result, mine in zip(results, into, strict=True)] == [True, True]
    copied = len(step.copied(PLATFORM_COPIES))
    assert [kind for kind, _ in tasks(graph)] == ["task"] * (copied + 1) + ["group", "task"]
    assert tasks(graph)[-1] == ("task", COPY)
    assert (into[0].cpu() == 77).all()  # nothing ran yet
    for order, turn in TURNS:
        turned(graph, step, order, turn)
        assert torch.equal(into[0].cpu(), step.expected(turn))
    assert (into[0].stride(), into[0].data_ptr()) == before
    figures = site(f"{step.operator.site}.out")
    assert (figures["captured"], figures["replayed"]) == (2, 2 * len(TURNS))
    assert figures["bytes_replayed"] == 2 * len(TURNS) * into[0].nbytes


@pytest.mark.parametrize("operator", ["v1.out", "v2.out"])
def test_both_results_strided(operator, hooked, site):
    """The log-sum-exp is the second tensor of the list."""
    step = Step.of("mla_tnd", "key", operator)
    flag = {"softmax_lse_flag" if step.operator.version == 1 else "return_softmax_lse": True}
    options = step.operator.options(step.scenario.options) | flag
    packet = getattr(torch.ops.npu, step.operator.site)
    expected = packet(**{n: t.contiguous() for n, t in step.tensors.items()}, **options)
    into = [strided.transposed(torch.zeros_like(tensor)) for tensor in expected]

    def call():
        workspace = getattr(torch.ops.npu, f"_{step.operator.site}_get_max_workspace")(**step.tensors, **options)
        return packet.out(**step.tensors, **options, workspace=workspace, out=into)

    graph, _ = capture(call, **AUTO)
    graph.update(cpu_update_input=[step.lengths[0]])
    replayed(graph)
    for mine, right in zip(into, expected, strict=True):
        assert torch.equal(mine.cpu(), right.cpu())
    assert site(f"{step.operator.site}.out")["captured"] == 4


@pytest.mark.parametrize("operator", ["v1", "v1.out", "v2", "v2.out"])
def test_one_view_for_key_and_value_is_copied_once(operator, hooked):
    step = Step.of("bsh", "key", operator)
    step.tensors["value"] = step.tensors["key"]
    graph, result = capture(step.call, **AUTO)
    assert len(tasks(graph)) == (1 if PLATFORM_COPIES else 2)
    for order, turn in TURNS:
        turned(graph, step, order, turn)
        assert torch.equal(result.cpu(), step.expected(turn))


def test_several_layers_in_one_graph(hooked, site):
    """Each layer has a group, and copies of its own; one update input for all of them, then one for each."""
    layers = [Step.of("mla_tnd", "all", operator) for operator in ("v1", "v2", "v1.out", "v2.out")]
    graph, results = capture(lambda: [layer.call() for layer in layers], **AUTO)
    kinds = [kind for kind, _ in tasks(graph)]
    assert kinds == (["task"] * len(layers[0].copied(PLATFORM_COPIES)) + ["group"]) * len(layers)
    for turns in ((0, 0, 0, 0), (1, 0, 1, 0), (0, 1, 0, 1)):
        graph.update(cpu_update_input=[layer.lengths[turn] for layer, turn in zip(layers, turns, strict=True)])
        replayed(graph)
        for layer, turn, result in zip(layers, turns, results, strict=True):
            assert torch.equal(result.cpu(), layer.expected(turn))
    graph.update(cpu_update_input=[layers[0].lengths[1] | layers[1].lengths[1]])
    replayed(graph)
    for layer, result in zip(layers, results, strict=True):
        assert torch.equal(result.cpu(), layer.expected(1))
    assert site(f"{SITE}.key")["captured"] == site(f"{SITE}_v2.key")["captured"] == (0 if PLATFORM_COPIES else 2)


def test_by_position_and_by_both_names(hooked):
    """Tensors given by position, and the operator under torch_npu's own name."""
    import torch_npu

    step = Step.of("mla_tnd", "all")
    named = {name: tensor for name, tensor in step.tensors.items() if name not in ("query", "key", "value")}
    positions = [step.tensors[name] for name in ("query", "key", "value")]
    for op in (torch_npu.npu_fused_infer_attention_score, torch.ops.npu.npu_fused_infer_attention_score.default):
        graph, result = capture(lambda op=op: op(*positions, **named, **step.scenario.options), **AUTO)
        for number, (order, turn) in enumerate(TURNS):
            refill(step.tensors, number)
            turned(graph, step, order, turn)
            assert torch.equal(result[0].cpu(), step.expected(turn))


def test_in_inference_mode(hooked):
    with torch.inference_mode():
        step = Step.of("mla_tnd", "all", "v1.out")
        into = step.strided_results()
        graph, result = capture(lambda: step.call(0, into), **AUTO)
        for order, turn in TURNS:
            turned(graph, step, order, turn)
            assert torch.equal(into[0].cpu(), step.expected(turn))
        assert result is into[0]


def test_the_copies_are_kept_when_the_callers_tensors_change_hands(hooked):
    """Between replays nobody but the graph knows of the copies; freed memory is written over."""
    step = Step.of("mla_tnd", "all")
    graph, result = capture(step.call, **AUTO)
    for number, (order, turn) in enumerate(TURNS):
        litter()
        refill(step.tensors, number)
        turned(graph, step, order, turn)
        assert torch.equal(result.cpu(), step.expected(turn))


def test_wrapped_call_sites_have_names(site):
    """Without install(): only the wrapped call is looked at."""
    step = Step.of("mla_tnd", "all")
    wrapped = ir.wrap(torch.ops.npu.npu_fused_infer_attention_score, site="model.attention")
    graph, results = capture(lambda: wrapped(**step.tensors, **step.scenario.options), **AUTO)
    for order, turn in TURNS:
        turned(graph, step, order, turn)
        assert torch.equal(results[0].cpu(), step.expected(turn))
    for name in OWN:
        figures = site(f"model.attention.{name}")
        counter = "hidden" if PLATFORM_COPIES else "replayed"
        assert figures[counter] == len(TURNS)
        assert site(f"{SITE}.{name}").get(counter, 0) == 0


@pytest.mark.skipif(facts.FUSED_ATTENTION != facts.REFUSES, reason="only a refusing operator shows it")
def test_uninstall_leaves_captures_as_they_were(hooked, sim):
    ir.uninstall()
    strided_step, step = Step.of("mla_tnd", "key"), Step.of("mla_tnd", "none")
    with pytest.raises(RuntimeError, match="EZ0037"):
        capture(strided_step.call, **AUTO)
    ir.reset_profile()
    graph, result = capture(step.call, **AUTO)
    assert [kind for kind, _ in tasks(graph)] == ["group"]
    for order, turn in TURNS:
        turned(graph, step, order, turn)
        assert torch.equal(result.cpu(), step.expected(turn))
    assert not any(one["calls"] for one in ir.profile()["sites"])
    ir.install()
    graph, result = capture(strided_step.call, **AUTO)
    turned(graph, strided_step, "update first", 1)
    assert torch.equal(result.cpu(), strided_step.expected(1))


def test_uninstalled_between_capture_and_update(hooked):
    """The copies belong to the graph, not to the hook."""
    step = Step.of("mla_tnd", "all")
    graph, result = capture(step.call, **AUTO)
    expected = [step.expected(turn) for turn in (0, 1)]
    ir.uninstall()
    for order, turn in TURNS:
        turned(graph, step, order, turn)
        assert torch.equal(result.cpu(), expected[turn])
    assert result.device == torch.device(DEVICE)
