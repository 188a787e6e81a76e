"""FusedInferAttentionScore of the simulated CANN, called by the unmodified torch_npu: run with
`tests/cann-sim/run .venv/bin/python -m pytest tests/python/sim/test_sim_fia.py`.

The reference is written here once more, in float64 on the CPU, sequence by sequence. What a release does with inputs
that are not contiguous is looked up in READING; the last test runs this file on the other chips and versions.
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
READING = {
    ("Ascend910B1", "8.5.0"): "copies",
    ("Ascend910B1", "9.1.0.pre"): "misreads",
    ("Ascend910B1", "9.1.0"): "copies",
    ("Ascend950PR_9599", "8.5.0"): "copies",
    ("Ascend950PR_9599", "9.1.0.pre"): "misreads",
    ("Ascend950PR_9599", "9.1.0"): "refuses",
}
HERE = READING[SOC, VERSION]
APIS = ["v1", "v2"]
SCALE = 0.125


@pytest.fixture
def sim():
    library = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
    library.cann_sim_hidden_copies.restype = ctypes.c_uint64
    library.cann_sim_hidden_copy_bytes.restype = ctypes.c_uint64
    torch.npu.synchronize()
    library.cann_sim_reset()
    return library


def fia(
    api, query, key, value, *, heads, layout, key_heads=0, lengths=None, key_lengths=None, lse=False, out=None, **rest
):
    names = {
        "v1": ("num_heads", "scale", "actual_seq_lengths", "actual_seq_lengths_kv", "softmax_lse_flag"),
        "v2": ("num_query_heads", "softmax_scale", "actual_seq_qlen", "actual_seq_kvlen", "return_softmax_lse"),
    }[api]
    rest |= dict(zip(names, (heads, SCALE, lengths, key_lengths, lse), strict=True))
    rest |= {"input_layout": layout, "num_key_value_heads": key_heads}
    suffix = {"v1": "", "v2": "_v2"}[api]
    operator = getattr(torch.ops.npu, "npu_fused_infer_attention_score" + suffix)
    tensors = [t.npu() for t in (query, key, value)]
    rest = {name: on_device(value) for name, value in rest.items()}
    if out is None:
        return [t.cpu() for t in operator(*tensors, **rest)]
    workspace = getattr(torch.ops.npu, f"_npu_fused_infer_attention_score{suffix}_get_max_workspace")(*tensors, **rest)
    operator.out(*tensors, workspace=workspace, out=out, **rest)
    return [t.cpu() for t in out]


def on_device(value):
    return value.npu() if isinstance(value, torch.Tensor) else value


def attention(query, key, value, visible=None, bias=None, sink=None):
    """One sequence in float64: [S, N, D] each, `visible` [S, keys]; returns [S, N, D] and [S, N]."""
    group = query.shape[1] // key.shape[1]
    key, value = (t.double().repeat_interleave(group, 1) for t in (key, value))
    scores = torch.einsum("snd,tnd->nst", query.double(), key) * SCALE
    if bias is not None:
        scores += bias.double()
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    everything = scores
    if sink is not None:
        everything = torch.cat([scores, sink.double().view(-1, 1, 1).expand(-1, scores.shape[1], 1)], -1)
    lse = torch.logsumexp(everything, -1)
    return torch.einsum("nst,tnd->snd", torch.exp(scores - lse.unsqueeze(-1)), value), lse.transpose(0, 1)


def randn(*shape, dtype=torch.float16):
    return torch.randn(*shape).to(dtype)


def sequences(lengths, heads, width, dtype=torch.float16):
    return [randn(length, heads, width, dtype=dtype) for length in lengths]


def pack(parts, layout):
    """Sequences of [S, N, D] as one tensor in a layout; shorter ones are padded with a number that would show."""
    if layout in ("TND", "NTD"):
        whole = torch.cat(parts)
        return whole.transpose(0, 1).contiguous() if layout == "NTD" else whole
    longest = max(part.shape[0] for part in parts)
    whole = torch.stack([torch.nn.functional.pad(p, (0, 0, 0, 0, 0, longest - p.shape[0]), value=77.0) for p in parts])
    turns = {"BSND": (0, 1, 2, 3), "BNSD": (0, 2, 1, 3), "NBSD": (2, 0, 1, 3), "BSH": (0, 1, 2, 3)}
    whole = whole.permute(turns[layout]).contiguous()
    return whole.flatten(2) if layout == "BSH" else whole


def unpack(whole, lengths, layout, heads):
    if layout in ("TND", "NTD"):
        return (whole.transpose(0, 1) if layout == "NTD" else whole).split(lengths)
    if layout == "BSH":
        whole = whole.unflatten(2, (heads, -1))
    turns = {"BSND": (0, 1, 2, 3), "BNSD": (0, 2, 1, 3), "NBSD": (1, 2, 0, 3), "BSH": (0, 1, 2, 3)}
    whole = whole.permute(turns[layout])
    return [whole[i, :length] for i, length in enumerate(lengths)]


def cumulative(lengths, layout):
    return torch.tensor(lengths).cumsum(0).tolist() if layout in ("TND", "NTD") else lengths


def close(found, expected, tolerance=2e-3):
    torch.testing.assert_close(found.double(), expected.double(), atol=tolerance, rtol=tolerance)


LAYOUTS = ["TND", "BSND", "BNSD", "BSH", "BNSD_BSND", "NTD_TND", "BSND_NBSD"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("api", APIS)
def test_every_layout_with_shared_heads_and_ragged_sequences(api, layout):
    first, last = (layout.split("_") * 2)[:2]
    lengths, key_lengths, heads, key_heads = [5, 2, 7], [9, 4, 7], 4, 2
    query, key, value = sequences(lengths, 4, 64), sequences(key_lengths, 2, 64), sequences(key_lengths, 2, 64)
    out, lse = fia(
        api,
        *(pack(parts, first) for parts in (query, key, value)),
        heads=heads,
        key_heads=key_heads,
        layout=layout,
        lengths=cumulative(lengths, first),
        key_lengths=cumulative(key_lengths, first),
        lse=True,
    )
    assert lse.dtype == torch.float32
    assert lse.shape == ((14, 4, 1) if first in ("TND", "NTD") else (3, 4, 7, 1))
    found_lse = unpack(lse, lengths, "TND" if lse.dim() == 3 else "BNSD", heads)
    for i, found in enumerate(unpack(out, lengths, last, heads)):
        expected, expected_lse = attention(query[i], key[i], value[i])
        close(found, expected)
        close(found_lse[i].squeeze(-1), expected_lse, 1e-5)


def positions(queries, keys, before=10**9, after=0, corner="lower right"):
    shift = keys - queries if corner == "lower right" else 0
    distance = torch.arange(keys) - torch.arange(queries).unsqueeze(1) - shift
    return (distance <= after) & (distance >= -before)


COMPRESSED = ~torch.ones(2048, 2048).tril().bool()


@pytest.mark.parametrize(
    "mode, limits, visible",
    [
        (2, {}, lambda q, k: positions(q, k, corner="upper left")),
        (3, {}, positions),
        (4, {"pre_tokens": 3, "next_tokens": 1}, lambda q, k: positions(q, k, 3, 1)),
    ],
)
@pytest.mark.parametrize("layout", ["TND", "BNSD"])
@pytest.mark.parametrize("api", APIS)
def test_visibility_by_position(api, layout, mode, limits, visible):
    lengths, key_lengths = [5, 3], [8, 6]
    query, key, value = sequences(lengths, 2, 32), sequences(key_lengths, 2, 32), sequences(key_lengths, 2, 32)
    out, _ = fia(
        api,
        *(pack(parts, layout) for parts in (query, key, value)),
        heads=2,
        layout=layout,
        lengths=cumulative(lengths, layout),
        key_lengths=cumulative(key_lengths, layout),
        atten_mask=COMPRESSED,
        sparse_mode=mode,
        **limits,
    )
    for i, found in enumerate(unpack(out, lengths, layout, 2)):
        close(found, attention(query[i], key[i], value[i], visible(lengths[i], key_lengths[i]))[0])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8])
@pytest.mark.parametrize("shape", [(2, 1, 4, 6), (1, 1, 4, 6), (2, 4, 6), (4, 6)])
def test_an_explicit_mask_hides_where_it_is_set(shape, dtype):
    query, key, value = sequences([4, 4], 2, 32), sequences([6, 6], 2, 32), sequences([6, 6], 2, 32)
    hides = torch.rand(shape) < 0.4
    hides[..., 0] = False
    tensors = [pack(parts, "BNSD") for parts in (query, key, value)]
    out, _ = fia("v1", *tensors, heads=2, layout="BNSD", atten_mask=hides.to(dtype))
    each = hides.broadcast_to(2, 1, 4, 6) if len(shape) == 4 else hides.broadcast_to(2, 4, 6).unsqueeze(1)
    for i in range(2):
        close(out[i].transpose(0, 1), attention(query[i], key[i], value[i], ~each[i, 0])[0])


def test_one_query_per_sequence_takes_a_mask_of_sequences_and_keys():
    query, key, value = sequences([1, 1], 2, 32), sequences([6, 6], 2, 32), sequences([6, 6], 2, 32)
    hides = torch.tensor([[False, True, True, False, True, True], [False, False, True, True, False, True]])
    tensors = [pack(parts, "BNSD") for parts in (query, key, value)]
    out, _ = fia("v1", *tensors, heads=2, layout="BNSD", atten_mask=hides)
    for i in range(2):
        close(out[i].transpose(0, 1), attention(query[i], key[i], value[i], ~hides[i : i + 1])[0])


def test_a_mask_that_is_too_small_is_refused():
    q, k = randn(1, 2, 4, 32), randn(1, 2, 6, 32)
    with pytest.raises(RuntimeError, match=r"attenMask of shape \[4, 5\] does not cover"):
        fia("v1", q, k, k, heads=2, layout="BNSD", atten_mask=torch.zeros(4, 5, dtype=torch.bool))


def test_bias_is_added_and_the_sink_takes_its_share():
    query, key, value = sequences([4], 2, 32), sequences([6], 2, 32), sequences([6], 2, 32)
    tensors = [pack(parts, "BNSD") for parts in (query, key, value)]
    bias = randn(1, 2, 4, 6)
    out, _ = fia("v1", *tensors, heads=2, layout="BNSD", pse_shift=bias)
    close(out[0].transpose(0, 1), attention(query[0], key[0], value[0], bias=bias[0])[0])
    sink = torch.tensor([0.5, -1.0])
    out, lse = fia("v2", *tensors, heads=2, layout="BNSD", learnable_sink=sink.half(), lse=True)
    expected, expected_lse = attention(query[0], key[0], value[0], sink=sink)
    close(out[0].transpose(0, 1), expected)
    close(lse[0, ..., 0].transpose(0, 1), expected_lse, 1e-5)


def mla(lengths, key_lengths, heads=4, dtype=torch.bfloat16):
    """Query and key of 128 + 64, value of 128, as the prefill of latent attention has them."""
    return (
        *(sequences(lengths, heads, 192, dtype), sequences(key_lengths, heads, 192, dtype)),
        sequences(key_lengths, heads, 128, dtype),
    )


@pytest.mark.parametrize("api", APIS)
def test_rotated_parts_add_to_the_scores(api):
    lengths, key_lengths = [5, 3], [8, 3]
    query, key, value = mla(lengths, key_lengths)
    q, k, v = (torch.cat(parts) for parts in (query, key, value))
    out, lse = fia(
        api,
        *(q[..., :128].contiguous(), k[..., :128].contiguous(), v),
        query_rope=q[..., 128:].contiguous(),
        key_rope=k[..., 128:].contiguous(),
        heads=4,
        layout="TND",
        lengths=cumulative(lengths, "TND"),
        key_lengths=cumulative(key_lengths, "TND"),
        atten_mask=COMPRESSED,
        sparse_mode=3,
        lse=True,
    )
    assert out.shape == (8, 4, 128) and out.dtype == torch.bfloat16
    for i, (found, sums) in enumerate(zip(out.split(lengths), lse.split(lengths), strict=True)):
        expected, expected_lse = attention(query[i], key[i], value[i], positions(lengths[i], key_lengths[i]))
        close(found, expected, 1e-2)
        close(sums.squeeze(-1), expected_lse, 1e-5)


def test_key_rope_must_have_the_heads_of_the_key():
    q, rope = randn(4, 4, 128), randn(4, 4, 64)
    with pytest.raises(RuntimeError, match="161002[^$]*1 heads, the call says 4"):
        lengths = {"lengths": [4], "key_lengths": [4]}
        fia("v1", q, q, q, query_rope=rope, key_rope=rope[:, :1].contiguous(), heads=4, layout="TND", **lengths)


def pages(parts, block_size, heads_first):
    """Sequences scattered over the blocks of a cache, and the table that finds them."""
    heads, width = parts[0].shape[1:]
    per_sequence = max(-(-part.shape[0] // block_size) for part in parts)
    blocks = torch.randperm(len(parts) * per_sequence + 3)[: len(parts) * per_sequence].view(len(parts), per_sequence)
    cache = torch.full((len(parts) * per_sequence + 3, block_size, heads, width), 55.0, dtype=parts[0].dtype)
    for part, row in zip(parts, blocks, strict=True):
        for at, block in enumerate(row.tolist()):
            piece = part[at * block_size : (at + 1) * block_size]
            cache[block, : piece.shape[0]] = piece
    cache = cache.transpose(1, 2).contiguous() if heads_first else cache.flatten(2)
    return cache, blocks.int()


@pytest.mark.parametrize("heads_first", [False, True], ids=["BnBsH", "BnNBsD"])
@pytest.mark.parametrize("layout", ["TND", "BSH"])
@pytest.mark.parametrize("api", APIS)
def test_paged_caches_have_lengths_of_their_own(api, layout, heads_first):
    lengths, key_lengths = [1, 1, 1], [20, 16, 37]
    query, key, value = sequences(lengths, 4, 32), sequences(key_lengths, 2, 32), sequences(key_lengths, 2, 32)
    torch.manual_seed(7)
    key_cache, table = pages(key, 16, heads_first)
    torch.manual_seed(7)
    value_cache, same = pages(value, 16, heads_first)
    assert torch.equal(table, same)
    out, _ = fia(
        api,
        *(pack(query, layout), key_cache, value_cache),
        heads=4,
        key_heads=2,
        layout=layout,
        lengths=cumulative(lengths, layout),
        key_lengths=key_lengths,
        block_table=table,
        block_size=16,
    )
    for i, found in enumerate(unpack(out, lengths, layout, 4)):
        close(found, attention(query[i], key[i], value[i])[0])


@pytest.mark.parametrize("api", APIS)
def test_out_with_the_largest_workspace(api):
    query, key, value = sequences([6], 2, 64), sequences([6], 2, 64), sequences([6], 2, 64)
    tensors = [pack(parts, "TND") for parts in (query, key, value)]
    given = [torch.empty(6, 2, 64, dtype=torch.float16).npu(), torch.empty(1).npu()]
    out, _ = fia(api, *tensors, heads=2, layout="TND", lengths=[6], key_lengths=[6], out=given)
    close(out, attention(query[0], key[0], value[0])[0])


def test_without_the_flag_the_sums_are_zero():
    q = randn(1, 2, 4, 32)
    _, lse = fia("v1", q, q, q, heads=2, layout="BNSD")
    assert lse.numel() <= 1 and not lse.any()


def test_what_is_not_simulated_is_named():
    q = randn(1, 2, 4, 32)
    with pytest.raises(RuntimeError, match="keySharedPrefix is not simulated"):
        fia("v1", q, q, q, heads=2, layout="BNSD", key_shared_prefix=q, value_shared_prefix=q)


# What the operator does with inputs that are not contiguous.

REASONS = {
    "key": "In non-PA scenarios, key tensor must be contiguous",
    "value": "In non-PA scenarios, value tensor must be contiguous",
    "key_rope": "In non-PA scenarios, keyRope does not support non-contiguous tensors",
}


def as_misread(view):
    """What a kernel without strides takes the view for: the storage from the offset on, zeros behind its end."""
    storage = view.as_strided((view.untyped_storage().nbytes() // view.itemsize,), (1,), 0)[view.storage_offset() :]
    flat = torch.zeros(view.numel(), dtype=view.dtype, device=view.device)
    flat[: storage.numel()] = storage[: view.numel()]
    return flat.view(view.shape)


def prefill():
    """Latent attention as servers call it, every part a view of a fused projection, on the device."""
    query, key, value = (t[0] for t in mla([6], [6]))
    fused = torch.cat([key, value], -1).npu()
    assert fused.shape[-1] == 320
    k, rope, v = fused[..., :128], fused[..., 128:192], fused[..., 192:]
    query = query.npu()
    return {
        "query": query[..., :128],
        "key": k,
        "value": v,
        "query_rope": query[..., 128:],
        "key_rope": rope,
    }


def run_prefill(api, tensors):
    common = {"heads": 4, "layout": "TND", "lengths": [6], "key_lengths": [6]}
    rest = {name: tensors[name] for name in ("query_rope", "key_rope")}
    return fia(api, tensors["query"], tensors["key"], tensors["value"], **rest, **common)[0]


def expected_prefill(tensors):
    tensors = {name: tensor.cpu() for name, tensor in tensors.items()}
    query = torch.cat([tensors["query"], tensors["query_rope"]], -1)
    key = torch.cat([tensors["key"], tensors["key_rope"]], -1)
    return attention(query, key, tensors["value"])[0]


@pytest.mark.parametrize("argument", ["key", "value", "key_rope"])
@pytest.mark.parametrize("api", APIS)
def test_a_strided_argument_is_read_as_the_release_reads_it(sim, api, argument):
    views = prefill()
    tensors = {name: tensor if name == argument else tensor.contiguous() for name, tensor in views.items()}
    right = expected_prefill(views)
    torch.npu.synchronize()
    sim.cann_sim_reset()
    if HERE == "refuses":
        with pytest.raises(RuntimeError) as caught:
            run_prefill(api, tensors)
        text = str(caught.value)
        parameter = {"key_rope": "keyRope"}.get(argument, argument)
        assert "call aclnnFusedInferAttentionScoreV5 failed" in text and "161002" in text
        assert (
            f"EZ0037: Parameter {parameter} of FusedInferAttentionScore is invalid. Reason: {REASONS[argument]}."
            in text
        )
        return
    found = run_prefill(api, tensors)
    if HERE == "copies":
        close(found, right, 1e-2)
        assert sim.cann_sim_hidden_copies() == 1
        assert sim.cann_sim_hidden_copy_bytes() == views[argument].numel() * 2
        return
    close(found, expected_prefill(tensors | {argument: as_misread(views[argument])}), 1e-2)
    assert sim.cann_sim_hidden_copies() == 0
    with pytest.raises(AssertionError):
        close(found, right, 1e-2)


def test_a_strided_query_is_copied_in_every_release(sim):
    views = prefill()
    tensors = {name: tensor if name.startswith("query") else tensor.contiguous() for name, tensor in views.items()}
    torch.npu.synchronize()
    sim.cann_sim_reset()
    close(run_prefill("v1", tensors), expected_prefill(views), 1e-2)
    assert sim.cann_sim_hidden_copies() == 2
    assert sim.cann_sim_hidden_copy_bytes() == (views["query"].numel() + views["query_rope"].numel()) * 2


def test_dimensions_of_size_one_never_matter():
    key = randn(2, 3, 4, 32).npu()[:, :1].as_strided((1, 4, 1, 32), (999, 32, 7, 1))
    query = randn(1, 1, 1, 32)
    out, _ = fia("v1", query, key, key, heads=1, layout="BSND")
    key = key.cpu()
    close(out[0], attention(query[0], key[0], key[0])[0])


def test_a_strided_page_cache_is_read_as_the_release_reads_it(sim):
    key = sequences([20, 9], 2, 32)
    cache, table = pages(key, 16, heads_first=False)
    both = torch.stack([cache, cache + 1], 1).npu()  # blocks of keys and values taking turns
    query = sequences([1, 1], 2, 32)

    def run(keys, values):
        common = {"heads": 2, "layout": "TND", "lengths": [1, 2], "key_lengths": [20, 9], "block_size": 16}
        return fia("v1", torch.cat(query), keys, values, block_table=table, **common)[0]

    if HERE == "refuses":
        reason = "In PA and not MXFP8 Fullquant scenarios, key tensor must be contiguous"
        with pytest.raises(RuntimeError, match=reason):
            run(both[:, 0], both[:, 1])
        return
    right = [attention(query[i], key[i], (key[i] + 1).half())[0] for i in range(2)]
    found = run(both[:, 0], both[:, 1]).split(1)
    if HERE == "misreads":
        with pytest.raises(AssertionError):
            close(torch.cat(found), torch.cat(right), 1e-2)
        close(torch.cat(found), run(as_misread(both[:, 0]), as_misread(both[:, 1])))
        return
    close(torch.cat(found), torch.cat(right), 1e-2)
    assert sim.cann_sim_hidden_copy_bytes() == 2 * cache.numel() * 2


@pytest.mark.parametrize("soc, version", [where for where in READING if where != (SOC, VERSION)])
@pytest.mark.skipif("CANN_SIM_NESTED" in os.environ, reason="runs in the others' place")
def test_everything_above_on_another_release(soc, version):
    environment = os.environ | {"CANN_SIM_SOC": soc, "CANN_SIM_VERSION": version, "CANN_SIM_NESTED": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
