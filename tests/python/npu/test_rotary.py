"""The rotary operators: what each does with strides by itself, and that the hook makes all of them right."""

import cases
import infini_rearrange as ir
import platform_facts as facts
import pytest
import strided
import torch

pytestmark = pytest.mark.every_platform

DEVICE = "npu:0"
NPU = torch.ops.npu


def draw(*shape, seed=0, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def host(tensor):
    return tensor.cpu().contiguous().double()


def turned(x, cos, sin):
    """Rotary embedding with the first half of a head paired with the second, in float64."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def regrouped(x):
    """Even elements first, odd ones behind them."""
    return torch.cat([x[..., ::2], x[..., 1::2]], -1)


def assert_close(result, expected):
    torch.testing.assert_close(host(result), expected, atol=0.03, rtol=0.02)


# Operators that take every layout.


@pytest.mark.parametrize("kind", strided.KINDS.values(), ids=strided.KINDS)
@pytest.mark.parametrize("argument", ["input", "r1", "r2"])
def test_rotary_mul(argument, kind, hooked, site):
    tensors = {"input": draw(2, 6, 4, 64), "r1": draw(2, 6, 1, 64, seed=1), "r2": draw(2, 6, 1, 64, seed=2)}
    tensors[argument] = kind(tensors[argument])
    expected = turned(*(host(tensor) for tensor in tensors.values()))
    assert_close(NPU.npu_rotary_mul(*tensors.values()), expected)
    figures = site(f"npu_rotary_mul.{argument}")
    assert (figures["copied"], figures["hidden"], figures["bytes_hidden"]) == (0, 1, tensors[argument].nbytes)
    with ir.policy("strict"), pytest.raises(ir.NonContiguousError, match=rf"npu_rotary_mul\.{argument}"):
        NPU.npu_rotary_mul(*tensors.values())


@pytest.mark.parametrize("kind", strided.KINDS.values(), ids=strided.KINDS)
def test_rotary_mul_keeps_its_autograd(kind, hooked):
    base = draw(2, 6, 4, 64, dtype=torch.float32)
    x = kind(base).detach().requires_grad_()
    cos, sin = draw(2, 6, 1, 64, seed=1, dtype=torch.float32), draw(2, 6, 1, 64, seed=2, dtype=torch.float32)
    assert NPU.npu_rotary_mul(x, cos, sin).requires_grad
    with torch.inference_mode():
        assert_close(NPU.npu_rotary_mul(x, cos, sin), turned(host(x.detach()), host(cos), host(sin)))


@pytest.mark.parametrize("kind", strided.KINDS.values(), ids=strided.KINDS)
@pytest.mark.parametrize("argument", ["x", "cos", "sin"])
def test_interleave_rope(argument, kind, hooked, sim, site):
    tensors = {"x": draw(2, 4, 6, 64), "cos": draw(2, 1, 6, 64, seed=1), "sin": draw(2, 1, 6, 64, seed=2)}
    tensors[argument] = kind(tensors[argument])
    x, cos, sin = (host(tensor) for tensor in tensors.values())
    sim.reset()
    result = NPU.npu_interleave_rope(*tensors.values())
    assert sim.hidden() == (1, tensors[argument].nbytes)
    assert sim.copies() == 0
    assert site(f"npu_interleave_rope.{argument}")["bytes_hidden"] == tensors[argument].nbytes
    assert_close(result, turned(regrouped(x), cos, sin))


# Written in place.


def in_place_step(kind=None):
    query, key = draw(2, 6, 4, 128), draw(2, 6, 2, 128, seed=1)
    if kind is not None:
        query, key = kind(query), kind(key)
    return query, key, draw(2, 6, 1, 128, seed=2), draw(2, 6, 1, 128, seed=3)


IN_PLACE_KINDS = {name: kind for name, kind in strided.KINDS.items() if name != "expand"}
every_in_place_kind = pytest.mark.parametrize("kind", IN_PLACE_KINDS.values(), ids=IN_PLACE_KINDS)


@every_in_place_kind
@pytest.mark.parametrize("policy", ["auto", "warn"])
def test_apply_rotary_pos_emb_writes_the_callers_tensors(policy, kind, hooked, sim, site):
    query, key, cos, sin = in_place_step(kind)
    strides = query.stride(), key.stride()
    expected = [turned(host(tensor), host(cos), host(sin)) for tensor in (query, key)]
    sim.reset()
    with ir.policy(policy):
        results = NPU.npu_apply_rotary_pos_emb(query, key, cos, sin)
    assert sim.copies() == 4
    assert sim.hidden() == (0, 0)
    for tensor, result, values, stride in zip((query, key), results, expected, strides, strict=True):
        assert_close(tensor, values)
        assert result.data_ptr() == tensor.data_ptr()
        assert result.stride() == tensor.stride() == stride
    for name, tensor in (("query", query), ("key", key)):
        figures = site(f"npu_apply_rotary_pos_emb.{name}")
        assert (figures["copied"], figures["copied_back"]) == (1, 1)
        assert figures["bytes_copied"] == figures["bytes_copied_back"] == tensor.nbytes


def test_apply_rotary_pos_emb_writes_nothing_beside_its_columns(hooked):
    fused = draw(12, (4 + 2) * 128 + 32)
    before = fused.cpu()
    query, key = fused[:, : 4 * 128].view(2, 6, 4, 128), fused[:, 4 * 128 : 6 * 128].view(2, 6, 2, 128)
    assert not query.is_contiguous()
    _, _, cos, sin = in_place_step()
    expected = [turned(host(tensor), host(cos), host(sin)) for tensor in (query, key)]
    NPU.npu_apply_rotary_pos_emb(query, key, cos, sin)
    assert_close(query, expected[0])
    assert_close(key, expected[1])
    assert torch.equal(fused.cpu()[:, 6 * 128 :], before[:, 6 * 128 :])


def test_apply_rotary_pos_emb_on_contiguous_tensors(hooked, sim, total):
    query, key, cos, sin = in_place_step()
    expected = [turned(host(tensor), host(cos), host(sin)) for tensor in (query, key)]
    sim.reset()
    results = NPU.npu_apply_rotary_pos_emb(query, key, cos, sin)
    assert sim.copies() == total("copied") == total("copied_back") == 0
    for tensor, result, values in zip((query, key), results, expected, strict=True):
        assert_close(tensor, values)
        assert result.data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("argument", ["query", "key", "cos"])
def test_apply_rotary_pos_emb_under_strict(argument, hooked, sim):
    tensors = dict(zip(("query", "key", "cos", "sin"), in_place_step(), strict=True))
    tensors[argument] = strided.wider_rows(tensors[argument])
    before = [cases.contents(tensor) for tensor in tensors.values()]
    sim.reset()
    with ir.policy("strict"), pytest.raises(ir.NonContiguousError, match=rf"npu_apply_rotary_pos_emb\.{argument}"):
        NPU.npu_apply_rotary_pos_emb(*tensors.values())
    assert sim.launches("aclnnApplyRotaryPosEmb", "aclnnApplyRotaryPosEmbV2", "aclnnInplaceCopy") == 0
    assert [cases.contents(tensor) for tensor in tensors.values()] == before


def test_apply_rotary_pos_emb_refuses_what_overlaps_itself(hooked, sim):
    query, key, cos, sin = in_place_step()
    shared = query[:, :, :1].expand(2, 6, 4, 128)
    before = cases.contents(query)
    sim.reset()
    with pytest.raises(ir.NonContiguousError, match="overlap"):
        NPU.npu_apply_rotary_pos_emb(shared, key, cos, sin)
    assert sim.launches("aclnnApplyRotaryPosEmb", "aclnnApplyRotaryPosEmbV2", "aclnnInplaceCopy") == 0
    assert cases.contents(query) == before


# Of query and key only stride(0) is handed on.

TOKENS, HEADS, WIDTH = 12, 4, 64


def mrope_step():
    generator = torch.Generator().manual_seed(4)
    positions = torch.randint(0, 32, (TOKENS,), generator=generator).to(DEVICE)
    return positions, draw(TOKENS, HEADS * WIDTH), draw(TOKENS, 2 * WIDTH, seed=1), draw(32, WIDTH, seed=2)


def mrope_expected(positions, query, key, cache):
    half_cos, half_sin = host(cache)[positions.cpu()].chunk(2, -1)
    cos, sin = (torch.cat([half, half], -1).unsqueeze(1) for half in (half_cos, half_sin))
    return [turned(host(x).view(TOKENS, -1, WIDTH), cos, sin).reshape(TOKENS, -1) for x in (query, key)]


def mrope(step):
    return NPU.npu_mrope(*step, WIDTH)


def test_mrope_takes_rows_as_they_are(hooked, sim, site):
    positions, query, key, cache = mrope_step()
    step = positions, strided.wider_rows(query), strided.wider_rows(key), cache
    sim.reset()
    results = mrope(step)
    assert sim.copies() == 0
    for result, expected in zip(results, mrope_expected(*step), strict=True):
        assert_close(result, expected)
    for name in ("query", "key"):
        figures = site(f"npu_mrope.{name}")
        assert (figures["copied"], figures["contiguous"]) == (0, 1)
    with ir.policy("strict"):
        mrope(step)


@pytest.mark.parametrize("argument", ["query", "key"])
@pytest.mark.parametrize("kind", ["transposed", "every_other"])
def test_mrope_is_wrong_without_the_hook_and_right_with_it(kind, argument, sim, site):
    step = list(mrope_step())
    at = 1 if argument == "query" else 2
    step[at] = strided.KINDS[kind](step[at])
    expected = mrope_expected(*step)
    alone = mrope(step)
    assert (host(alone[at - 1]) - expected[at - 1]).abs().max() > 0.2
    ir.install()
    try:
        sim.reset()
        results = mrope(step)
        assert sim.copies() == 1
        for result, values in zip(results, expected, strict=True):
            assert_close(result, values)
        assert site(f"npu_mrope.{argument}")["bytes_copied"] == step[at].nbytes
        with ir.policy("strict"), pytest.raises(ir.NonContiguousError, match=rf"npu_mrope\.{argument}"):
            mrope(step)
    finally:
        ir.uninstall()


# Norm, rope and caches that are written in place.


def latent_step(kind=None):
    batch, length, most = 2, 3, 8
    kv = draw(batch, 1, length, 576)
    index = torch.tensor([[0, 1, 2], [5, 3, 4]], dtype=torch.int64, device=DEVICE)
    caches = [torch.full((batch, 1, most, width), 7, dtype=torch.bfloat16, device=DEVICE) for width in (64, 512)]
    cos, sin = draw(batch, 1, length, 64, seed=2), draw(batch, 1, length, 64, seed=3)
    return [kv if kind is None else kind(kv), draw(512, seed=1), cos, sin, index, *caches]


def latent_expected(kv, gamma, cos, sin, index, k_cache, ckv_cache):
    x = host(kv)
    latent, rope = x[..., :512], turned(regrouped(x[..., 512:]), host(cos), host(sin))
    latent = latent / (latent.square().mean(-1, keepdim=True) + 1e-5).sqrt() * host(gamma)
    caches = [host(k_cache), host(ckv_cache)]
    for sequence, slots in enumerate(index.cpu()):
        for cache, values in zip(caches, (rope, latent), strict=True):
            cache[sequence, 0, slots] = values[sequence, 0]
    return caches


@pytest.mark.parametrize("kind", strided.KINDS.values(), ids=strided.KINDS)
def test_kv_rmsnorm_rope_cache(kind, hooked, sim, site):
    step = latent_step(kind)
    expected = latent_expected(*step)
    sim.reset()
    NPU.npu_kv_rmsnorm_rope_cache(*step)
    assert sim.copies() == 0
    assert sim.hidden() == (1, step[0].nbytes)
    assert site("npu_kv_rmsnorm_rope_cache.kv")["bytes_hidden"] == step[0].nbytes
    for cache, values in zip(step[-2:], expected, strict=True):
        assert_close(cache, values)
    with ir.policy("strict"), pytest.raises(ir.NonContiguousError, match=r"npu_kv_rmsnorm_rope_cache\.kv"):
        NPU.npu_kv_rmsnorm_rope_cache(*step)


@pytest.mark.parametrize(("at", "name"), [(5, "k_cache"), (6, "ckv_cache")])
def test_caches_are_never_copied(at, name, hooked, sim, site):
    step = latent_step()
    step[at] = strided.wider_rows(step[at])
    before = cases.contents(step[at])
    sim.reset()
    with pytest.raises(RuntimeError, match="contiguous") as raised:
        NPU.npu_kv_rmsnorm_rope_cache(*step)
    assert not isinstance(raised.value, ir.NonContiguousError), "what the operator does is not known: it is asked"
    figures = site(f"npu_kv_rmsnorm_rope_cache.{name}")
    assert (figures["copied"], figures["copied_back"], figures["passed"]) == (0, 0, 1)
    assert sim.launches("aclnnInplaceCopy") == 0
    sim.reset()
    match = rf"npu_kv_rmsnorm_rope_cache\.{name}(.|\n)*never copied"
    with ir.policy("strict"), pytest.raises(ir.NonContiguousError, match=match):
        NPU.npu_kv_rmsnorm_rope_cache(*step)
    assert sim.launches("aclnnKvRmsNormRopeCache") == 0
    assert cases.contents(step[at]) == before


def test_in_place_without_the_hook(sim):
    """The operator by itself: what the simulation assumes of releases before and from 9.1 on."""
    query, key, cos, sin = in_place_step(strided.wider_rows)
    expected = turned(host(query), host(cos), host(sin))
    sim.reset()
    if facts.CANN.startswith("9.1"):
        with pytest.raises(RuntimeError, match="EZ1009"):
            NPU.npu_apply_rotary_pos_emb(query, key, cos, sin)
    else:
        NPU.npu_apply_rotary_pos_emb(query, key, cos, sin)
        assert_close(query, expected)
        assert sim.hidden()[0] >= 2
