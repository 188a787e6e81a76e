"""The rotary operators of the simulated CANN, called by the unmodified torch_npu: run with
`tests/cann-sim/run .venv/bin/python -m pytest tests/python/sim/test_sim_rotary.py`.

The reference is written here in float64 on the CPU. The last test runs this file on the other chips and versions.
"""

import ctypes
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if "CANN_SIM_LIBRARY" not in os.environ:
    pytest.skip("needs tests/cann-sim/run", allow_module_level=True)

SOC = os.environ.get("CANN_SIM_SOC", "Ascend910B1")
VERSION = os.environ.get("CANN_SIM_VERSION", "9.1.0")
RELEASES = [
    (soc, version) for soc in ("Ascend910B1", "Ascend950PR_9599") for version in ("8.5.0", "9.1.0.pre", "9.1.0")
]
# An assumption of the simulation: up to 9.0 query and key of ApplyRotaryPosEmb are copied in and back, from 9.1 on
# they are refused.
IN_PLACE_REFUSES = VERSION != "8.5.0"
npu = torch.ops.npu


@pytest.fixture
def sim():
    library = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
    library.cann_sim_hidden_copies.restype = ctypes.c_uint64
    library.cann_sim_hidden_copy_bytes.restype = ctypes.c_uint64
    torch.npu.synchronize()
    library.cann_sim_reset()
    return library


def turned(x, mode):
    if mode == "half":
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)
    if mode == "interleave":
        return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    assert mode == "quarter"
    return torch.cat([turned(part, "half") for part in x.chunk(2, -1)], -1)


def rotary(x, cos, sin, mode="half"):
    x, cos, sin = x.double(), cos.double(), sin.double()
    return x * cos + turned(x, mode) * sin


def sorted_rotary(x, cos, sin):
    """Even elements first, odd ones behind them, then as half."""
    return rotary(torch.cat([x[..., ::2], x[..., 1::2]], -1), cos, sin)


def close(found, expected, tolerance=2e-3):
    torch.testing.assert_close(found.cpu().double(), expected.cpu().double(), atol=tolerance, rtol=tolerance)


def randn(*shape, dtype=torch.float16):
    return torch.randn(*shape).to(dtype).npu()


@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize("angles", [(1, 5, 1, 64), (2, 5, 1, 64), (2, 5, 3, 64)], ids=["1S1D", "BS1D", "BSND"])
def test_rotary_mul(mode, angles):
    x, cos, sin = randn(2, 5, 3, 64), randn(*angles), randn(*angles)
    close(npu.npu_rotary_mul(x, cos, sin, mode), rotary(x.cpu(), cos.cpu(), sin.cpu(), mode))


def test_rotary_mul_of_a_view():
    whole = randn(2, 5, 3, 128)
    x, cos, sin = whole[..., 64:], randn(1, 5, 1, 64), randn(1, 5, 1, 64)
    close(npu.npu_rotary_mul(x, cos, sin), rotary(x.cpu(), cos.cpu(), sin.cpu()))


def test_rotary_mul_with_a_matrix():
    matrix = torch.zeros(64, 64)
    matrix[:32, 32:], matrix[32:, :32] = torch.eye(32), -torch.eye(32)
    x, cos, sin = randn(1, 4, 2, 64), randn(1, 4, 1, 64), randn(1, 4, 1, 64)
    close(npu.npu_rotary_mul(x, cos, sin, "half", matrix.half().npu()), rotary(x.cpu(), cos.cpu(), sin.cpu()))


@pytest.mark.parametrize("mode", ["half", "interleave", "quarter"])
def test_apply_rotary_writes_query_and_key(mode):
    query, key = randn(2, 5, 4, 64), randn(2, 5, 1, 64)
    cos, sin = randn(2, 5, 1, 64), randn(2, 5, 1, 64)
    expected = [rotary(t.cpu(), cos.cpu(), sin.cpu(), mode) for t in (query, key)]
    pointers = query.data_ptr(), key.data_ptr()
    out = npu.npu_apply_rotary_pos_emb(query, key, cos, sin, "BSND", mode)
    assert tuple(t.data_ptr() for t in out) == pointers
    for found, returned, right in zip((query, key), out, expected, strict=True):
        close(found, right)
        close(returned, right)


@pytest.mark.parametrize("argument", ["query", "key"])
def test_apply_rotary_in_a_view(sim, argument):
    shapes = {"query": (2, 5, 4, 64), "key": (2, 5, 1, 64)}
    tensors = {name: randn(*shape) for name, shape in shapes.items()}
    whole = randn(*shapes[argument][:3], 192)
    kept = whole.cpu().clone()
    tensors[argument] = whole[..., 64:128]
    cos, sin = randn(2, 5, 1, 64), randn(2, 5, 1, 64)
    torch.npu.synchronize()
    sim.cann_sim_reset()
    if IN_PLACE_REFUSES:
        with pytest.raises(RuntimeError) as caught:
            npu.npu_apply_rotary_pos_emb(tensors["query"], tensors["key"], cos, sin)
            torch.npu.synchronize()
        text = str(caught.value)
        assert f"EZ1009: Parameter {argument} of the operator is a non-contiguous tensor." in text and "161002" in text
        assert torch.equal(whole.cpu(), kept)
        return
    npu.npu_apply_rotary_pos_emb(tensors["query"], tensors["key"], cos, sin)
    close(whole[..., 64:128], rotary(kept[..., 64:128], cos.cpu(), sin.cpu()))
    assert torch.equal(whole[..., :64].cpu(), kept[..., :64]) and torch.equal(whole[..., 128:].cpu(), kept[..., 128:])
    assert sim.cann_sim_hidden_copies() == 1


def test_interleave_rope_sorts_and_copies_a_view(sim):
    whole = randn(2, 3, 4, 128)
    x, cos, sin = whole[..., 64:], randn(2, 1, 4, 64), randn(2, 1, 4, 64)
    expected = sorted_rotary(x.cpu().double(), cos.cpu(), sin.cpu())
    sim.cann_sim_reset()
    close(npu.npu_interleave_rope(x, cos, sin), expected)
    assert (sim.cann_sim_hidden_copies(), sim.cann_sim_hidden_copy_bytes()) == (1, x.numel() * 2)


def with_cache(x, positions, cache, head, mode, sections=None):
    """The reference of npu_mrope for one of query and key: [tokens, heads * head]."""
    heads = x.cpu().double().unflatten(-1, (-1, head))
    turn = cache.shape[-1]
    cos, sin = cache.cpu().double()[positions.cpu()].chunk(2, -1)
    if sections:
        cos, sin = (
            torch.cat([part[i] for i, part in enumerate(angle.split(sections, -1))], -1) for angle in (cos, sin)
        )
    spread = (lambda a: a.repeat_interleave(2, -1)) if mode == "interleave" else (lambda a: torch.cat([a, a], -1))
    cos, sin = spread(cos).unsqueeze(1), spread(sin).unsqueeze(1)
    return torch.cat([rotary(heads[..., :turn], cos, sin, mode), heads[..., turn:]], -1).flatten(1)


@pytest.mark.parametrize("turn", [64, 32], ids=["whole head", "half a head"])
@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_mrope_with_one_position_per_token(mode, turn):
    positions = torch.tensor([3, 0, 8, 3, 5]).npu()
    query, key, cache = randn(5, 256), randn(5, 128), randn(9, turn)
    out = npu.npu_mrope(positions, query, key, cache, 64, rotary_mode=mode)
    for x, found in zip((query, key), out, strict=True):
        close(found, with_cache(x, positions, cache, 64, mode))


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_mrope_with_sections(mode):
    positions = torch.tensor([[3, 0, 8], [1, 1, 2], [7, 5, 0]]).npu()
    query, key, cache = randn(3, 256), randn(3, 128), randn(9, 128)
    sections = [16, 24, 24]
    out = npu.npu_mrope(positions, query, key, cache, 128, mrope_section=sections, rotary_mode=mode)
    for x, found in zip((query, key), out, strict=True):
        close(found, with_cache(x, positions, cache, 128, mode, sections))


def test_mrope_follows_the_stride_of_rows():
    positions, cache = torch.arange(4).npu(), randn(9, 64)
    fused = randn(4, 256 + 128)
    query, key = fused[:, :256], fused[:, 256:]
    out = npu.npu_mrope(positions, query, key, cache, 64)
    for x, found in zip((query, key), out, strict=True):
        close(found, with_cache(x, positions, cache, 64, "half"))


def test_mrope_ignores_every_other_stride():
    positions, cache = torch.arange(4).npu(), randn(9, 64)
    storage, key = randn(64 * 8), randn(4, 64)
    query = storage.view(64, 8).t()[:4]  # [4, 64] with strides (1, 8)
    found = npu.npu_mrope(positions, query, key, cache, 64)[0]
    as_read = storage.as_strided((4, 64), (1, 1))
    close(found, with_cache(as_read, positions, cache, 64, "half"))
    with pytest.raises(AssertionError):
        close(found, with_cache(query, positions, cache, 64, "half"))


def test_mrope_refuses_sections_that_do_not_add_up():
    positions = torch.zeros(3, 4, dtype=torch.int64).npu()
    with pytest.raises(RuntimeError, match=r"mropeSection \[16, 24, 16\] must add up to half of 128"):
        npu.npu_mrope(positions, randn(4, 128), randn(4, 128), randn(9, 128), 128, mrope_section=[16, 24, 16])
        torch.npu.synchronize()


NORM, ROPE = 64, 32


def latent(kv, gamma, cos, sin):
    kv = kv.cpu().double()
    x = kv[..., :NORM]
    normed = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * gamma.cpu().double()
    return sorted_rotary(kv[..., NORM:], cos.cpu(), sin.cpu()), normed


def latent_inputs(batch=2, length=3):
    angles = (batch, 1, length, ROPE)
    return randn(batch, 1, length, NORM + ROPE), randn(NORM), randn(*angles), randn(*angles)


def test_kv_norm_and_rope_go_to_each_sequences_part():
    inputs = latent_inputs()
    keys, normed = latent(*inputs)
    k_cache, ckv_cache = randn(2, 1, 8, ROPE), randn(2, 1, 8, NORM)
    expected = k_cache.cpu().double(), ckv_cache.cpu().double()
    index = torch.tensor([[0, 5, -1], [7, 2, 1]])
    for b in range(2):
        for s in range(3):
            if index[b, s] >= 0:
                for cache, rows in zip(expected, (keys, normed), strict=True):
                    cache[b, 0, index[b, s]] = rows[b, 0, s]
    npu.npu_kv_rmsnorm_rope_cache(*inputs, index.npu(), k_cache, ckv_cache)
    close(k_cache, expected[0])
    close(ckv_cache, expected[1])


@pytest.mark.parametrize("mode", ["PA", "PA_BNSD"])
def test_kv_norm_and_rope_go_to_slots(mode):
    inputs = latent_inputs()
    keys, normed = latent(*inputs)
    k_cache, ckv_cache = randn(4, 16, 1, ROPE), randn(4, 16, 1, NORM)
    expected = k_cache.cpu().double().view(64, ROPE), ckv_cache.cpu().double().view(64, NORM)
    index = torch.tensor([3, 63, 17, -1, 0, 40])
    for token, slot in enumerate(index.tolist()):
        if slot >= 0:
            expected[0][slot], expected[1][slot] = keys.view(6, ROPE)[token], normed.view(6, NORM)[token]
    out = npu.npu_kv_rmsnorm_rope_cache(*inputs, index.npu(), k_cache, ckv_cache, cache_mode=mode, is_output_kv=True)
    close(k_cache.view(64, ROPE), expected[0])
    close(ckv_cache.view(64, NORM), expected[1])
    close(out[2], keys)
    close(out[3], normed)


def test_kv_may_be_a_view_and_the_caches_may_not(sim):
    kv, gamma, cos, sin = latent_inputs()
    wide = torch.cat([kv, kv], -1)[..., : NORM + ROPE]
    index = torch.arange(3).repeat(2, 1).npu()
    k_cache, ckv_cache = randn(2, 1, 8, ROPE), randn(2, 1, 8, NORM)
    keys, normed = latent(kv, gamma, cos, sin)
    torch.npu.synchronize()
    sim.cann_sim_reset()
    npu.npu_kv_rmsnorm_rope_cache(wide, gamma, cos, sin, index, k_cache, ckv_cache)
    close(k_cache[:, :, :3], keys)
    close(ckv_cache[:, :, :3], normed)
    assert sim.cann_sim_hidden_copy_bytes() == kv.numel() * 2 and sim.cann_sim_hidden_copies() == 1
    strided = randn(2, 1, 8, 2 * ROPE)[..., :ROPE]
    with pytest.raises(RuntimeError, match="kCacheRef .* is written in place and must be contiguous"):
        npu.npu_kv_rmsnorm_rope_cache(kv, gamma, cos, sin, index, strided, ckv_cache)
        torch.npu.synchronize()


@pytest.mark.parametrize("soc, version", [where for where in RELEASES if where != (SOC, VERSION)])
@pytest.mark.skipif("CANN_SIM_NESTED" in os.environ, reason="runs in the others' place")
def test_everything_above_on_another_release(soc, version):
    environment = os.environ | {"CANN_SIM_SOC": soc, "CANN_SIM_VERSION": version, "CANN_SIM_NESTED": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
