"""The dispatcher hook, on operators of our own."""

import threading

import infini_rearrange as ir
import pytest
import torch


def view(rows=4, columns=6, start=2):
    return torch.arange(float(rows * 8)).reshape(rows, 8)[:, start : start + columns - 2]


def test_installing_names_what_is_registered_and_is_idempotent(hooked):
    first = ir.install()
    assert "infini_test::attend" in first
    assert "infini_test::not_there" not in first
    assert ir.install() == first


def test_operators_of_the_users_file_that_are_not_registered_are_said_once(in_new_process):
    said = in_new_process("ir.install(); ir.uninstall(); ir.install(); print(ir.install() != [])").stderr
    assert said.count("infini_test::not_there") == 1
    assert "import the package that defines them" in said
    assert "atb::" not in said


def test_a_strided_argument_is_copied_and_the_result_is_right(hooked, ops, given, site):
    x, key = torch.ones(3), view()
    assert ops.attend(x, key) == x.sum() + key.sum()
    assert given["key"].is_contiguous()
    assert torch.equal(given["key"], key)
    figures = site("infini_test::attend.key")
    assert (figures["calls"], figures["copied"], figures["bytes_copied"]) == (1, 1, key.numel() * 4)
    assert figures["layouts"][0]["diagnosis"] == "columns 2..6 of rows of 8"


def test_contiguous_arguments_pass_as_they_are(hooked, ops, given, site):
    x, key = torch.ones(3), torch.ones(4, 5)
    ops.attend(x, key)
    assert given["key"].data_ptr() == key.data_ptr()
    assert site("infini_test::attend.key")["contiguous"] == 1
    assert site("infini_test::attend.key")["copied"] == 0
    made = key.t().contiguous()
    ops.attend(x, made)
    assert site("infini_test::attend.key")["copied"] == 0


def test_odd_strides_of_size_one_dims_cost_no_copy(hooked, ops, given, site):
    base = torch.arange(20.0)
    ops.attend(torch.ones(1), torch.as_strided(base, (4, 1, 5), (5, 999, 1)))
    assert given["key"].stride() == (5, 5, 1)
    assert given["key"].data_ptr() == base.data_ptr()
    assert site("infini_test::attend.key")["copied"] == 0


def test_rows_and_outer(hooked, ops, given, site):
    wide = torch.randn(6, 10)
    ops.attend(torch.ones(1), rows=wide[:, :4])
    assert given["rows"].stride() == (10, 1)
    ops.attend(torch.ones(1), rows=wide.t())
    assert given["rows"].is_contiguous()
    # An expand is not rows: an operator that multiplies by stride(0) may still write or prefetch by it.
    ops.attend(torch.ones(1), rows=wide[:1, :4].expand(6, 4))
    assert given["rows"].is_contiguous()
    assert site("infini_test::attend.rows")["copied"] == 2
    blocks = torch.randn(3, 4, 5, 6)
    ops.attend(torch.ones(1), blocks=blocks[:, :2, :, :][::2])
    assert given["blocks"].stride() == blocks[:, :2][::2].stride()
    ops.attend(torch.ones(1), blocks=blocks[..., :3])
    assert given["blocks"].is_contiguous()


def test_any_is_passed_and_counted_as_hidden(hooked, ops, given, site):
    query = view()
    ops.attend(query)
    assert given["query"].stride() == query.stride()
    figures = site("infini_test::attend.query")
    assert (figures["hidden"], figures["copied"], figures["bytes_hidden"]) == (1, 0, query.numel() * 4)


def test_written_in_place_arguments_are_copied_back_and_returned(hooked, ops, site):
    base = torch.arange(48.0).reshape(6, 8)
    query, key = base[:, :4], base[:, 4:].t()
    q0, k0 = query.clone(), key.clone()
    results = ops.turn(query, key)
    assert results[0] is query or results[0].data_ptr() == query.data_ptr()
    assert results[1].stride() == key.stride()
    assert torch.equal(query, q0 * 2)
    assert torch.equal(key, k0 + 1)
    assert site("infini_test::turn.query")["copied_back"] == 1


def test_a_failing_operator_leaves_in_place_arguments_alone(hooked, ops):
    base = torch.arange(48.0).reshape(6, 8)
    before = base.clone()
    with pytest.raises(ValueError, match="half-way"):
        ops.turn(base[:, :4], base[:, 4:], True)
    assert torch.equal(base, before)
    ops.turn(base[:, :4], base[:, 4:])
    assert torch.equal(base[:, :4], before[:, :4] * 2)


def test_in_place_arguments_that_overlap_themselves_are_refused(hooked, ops):
    base = torch.ones(4)
    with pytest.raises(ir.NonContiguousError, match="overlap"):
        ops.turn(base.expand(3, 4), torch.ones(2))
    assert torch.equal(base, torch.ones(4))


def test_out_tensors_in_a_list(hooked, ops, site):
    x = torch.arange(12.0).reshape(3, 4)
    strided, plain = torch.zeros(4, 3).t(), torch.zeros(3, 4)
    outs = [strided, plain]
    results = ops.fill(x, out=outs)
    assert torch.equal(strided, x)
    assert torch.equal(plain, x + 1)
    assert [result.data_ptr() for result in results] == [out.data_ptr() for out in outs]
    assert outs[0] is strided
    assert site("infini_test::fill.out")["copied"] == 1
    assert site("infini_test::fill.out")["copied_back"] == 1


def test_tensor_lists_as_inputs_and_the_same_view_twice(hooked, ops, given, site):
    key = view()
    result = ops.gather([key, torch.ones(2), key])
    assert torch.equal(result, torch.cat([key.reshape(-1), torch.ones(2), key.reshape(-1)]))
    assert all(tensor.is_contiguous() for tensor in given.values())
    assert given["0"].data_ptr() == given["2"].data_ptr()
    assert site("infini_test::gather.tensors")["copied"] == 1


def test_caches_are_never_copied(hooked, ops, given, site, caplog):
    cache = torch.randn(4, 8)[:, :6]
    table = torch.zeros(2, dtype=torch.int32)
    for _ in range(3):
        ops.attend(torch.ones(1), cache, block_table=table)
    assert given["key"].data_ptr() == cache.data_ptr()
    assert given["key"].stride() == cache.stride()
    figures = site("infini_test::attend.key")
    assert (figures["copied"], figures["passed"]) == (0, 3)
    assert sum("infini_test::attend.key" in record.getMessage() for record in caplog.records) == 1


def test_a_cache_that_the_operator_copies_is_said_once_under_auto_too(hooked, ops, given, site, caplog):
    cache = torch.randn(4, 8)[:, :6]
    for _ in range(3):
        ops.hide(cache)
    assert given["cache"].data_ptr() == cache.data_ptr()
    figures = site("infini_test::hide.cache")
    assert (figures["copied"], figures["hidden"]) == (0, 3)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "infini_rearrange"]
    assert "hidden copy" in said
    assert "dense blocks" in said


def test_a_cache_that_would_be_misread_is_refused(hooked, ops, given):
    given.clear()
    for policy in ("auto", "warn", "strict"):
        with ir.policy(policy), pytest.raises(ir.NonContiguousError, match="never copied"):
            ops.misread(torch.randn(4, 8)[:, :6])
    assert "cache" not in given
    with ir.policy("off"):
        ops.misread(torch.randn(4, 8)[:, :6])
    assert "cache" in given


def test_strict_refuses_before_anything_runs(hooked, ops, given, site):
    given.clear()
    with ir.policy("strict"), pytest.raises(ir.NonContiguousError) as raised:
        ops.attend(torch.ones(8)[::2], view(), rows=torch.ones(4, 4).t())
    text = str(raised.value)
    for word in (
        "infini_test::attend.key",
        "infini_test::attend.query",
        "infini_test::attend.rows",
        "f32 [4, 4] strides [8, 1] offset 2",
        "columns 2..6 of rows of 8",
        "write the key to a buffer of its own",
        'policy("strict")',
    ):
        assert word in text
    assert not given
    assert isinstance(raised.value, RuntimeError)
    assert site("infini_test::attend.key")["refused"] == 1
    ops.attend(torch.ones(1), view())


def test_off_counts_only(hooked, ops, given, site):
    with ir.policy("off"):
        ops.attend(torch.ones(1), view())
    assert not given["key"].is_contiguous()
    assert site("infini_test::attend.key")["passed"] == 1


def test_warn_speaks_at_the_first_call_and_at_doubling_counts(hooked, ops, caplog):
    with ir.policy("warn,infini_test::attend.rows=auto"):
        for _ in range(9):
            ops.attend(torch.ones(1), view(), rows=torch.ones(4, 4).t())
    said = [record.getMessage() for record in caplog.records if record.name == "infini_rearrange"]
    assert len(said) == 4  # 1, 2, 4, 8
    assert said[0].splitlines()[0] == "infini_test::attend.key needs a contiguous tensor; copied 64 B"
    assert said[0].splitlines()[1].strip() == ("layout  f32 [4, 4] strides [8, 1] offset 2: columns 2..6 of rows of 8")
    assert "test_hook.py" in said[0].splitlines()[2]
    assert "test_warn_speaks" in said[0].splitlines()[2]
    assert said[0].splitlines()[3].strip() == "avoid   write the key to a buffer of its own"


def test_uninstall_takes_the_hook_away(ops, given, site):
    ir.install()
    ir.uninstall()
    ops.attend(torch.ones(1), view())
    assert not given["key"].is_contiguous()
    assert site("infini_test::attend.key")["calls"] == 0


def test_wrap_covers_one_call_site(ops, given, site):
    wrapped = ir.wrap(ops.attend, site="model.attention")
    key = view()
    assert wrapped(torch.ones(1), key) == 1 + key.sum()
    assert given["key"].is_contiguous()
    assert site("model.attention.key")["copied"] == 1
    assert site("infini_test::attend.key")["copied"] == 0
    ops.attend(torch.ones(1), key)
    assert not given["key"].is_contiguous()
    with pytest.raises(ir.NonContiguousError, match=r"model\.attention\.key"):
        ir.wrap(ops.attend.default, site="model.attention", policy="strict")(torch.ones(1), key)
    ir.uninstall()
    wrapped(torch.ones(1), key)
    assert given["key"].is_contiguous()


def test_wrap_says_what_it_cannot_wrap(ops):
    with pytest.raises(TypeError, match="wrap needs an operator"):
        ir.wrap(print)
    with pytest.raises(RuntimeError, match="no contract names the operator aten::add"):
        ir.wrap(torch.ops.aten.add)


def test_scopes_are_of_one_thread_and_nest(hooked, ops, given):
    @ir.policy("strict")
    def refused():
        ops.attend(torch.ones(1), view())

    with ir.policy("strict"):
        with ir.policy("infini_test::attend.key=auto"):
            ops.attend(torch.ones(1), view())
        with ir.policy("infini_test::turn=warn"), pytest.raises(ir.NonContiguousError):
            ops.attend(torch.ones(1), view())
        failed = []

        def other():
            try:
                ops.attend(torch.ones(1), view())
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not failed
    with pytest.raises(ir.NonContiguousError):
        refused()
    ops.attend(torch.ones(1), view())


def test_directives_that_do_not_parse(hooked):
    for text, column, word in (("warm", 1, "warm"), ("auto,npu_mrope.*=strickt", 18, "strickt"), ("auto,,warn", 6, "")):
        with pytest.raises(RuntimeError, match=rf'"{word}.*column {column}|column {column}') as raised:
            ir.policy(text)
        assert word in str(raised.value)
    with pytest.raises(RuntimeError, match="auto, auto-contiguous, warn, strict, off"):
        ir.policy("warm")


def test_many_threads_count_exactly(hooked, ops, site):
    def work():
        for _ in range(50):
            ops.attend(torch.ones(1), view())
            ops.attend(torch.ones(1), torch.ones(3))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = site("infini_test::attend.key")
    assert (figures["calls"], figures["copied"], figures["contiguous"]) == (800, 400, 400)


def test_gradients_pass_the_hook(hooked, ops):
    x = torch.randn(3, 4, requires_grad=True)
    with torch.no_grad():
        ops.gather([x.t()])
    assert x.grad is None


def test_what_an_operator_leaves_of_an_out_tensor_comes_back_as_it_was(hooked, ops):
    untouched = torch.full((3, 4), 5.0).t()
    ops.keep(torch.ones(4, 3), out=[untouched])
    assert torch.equal(untouched, torch.full((4, 3), 5.0))


def test_names_that_no_argument_has_are_said(in_new_process, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('["aten::addmm"]\nmat = "contiguous"\nmat1 = "contiguous"\n')
    said = in_new_process("ir.install()", INFINI_CONTRACTS=str(file)).stderr
    assert "the contracts of aten::addmm name mat, which it does not have" in said
    assert "mat1" in said


def test_the_operators_directives_hold_at_named_sites(hooked, ops, caplog):
    wrapped = ir.wrap(ops.attend, site="model.here")
    with ir.policy("auto,infini_test::attend=warn"):
        wrapped(torch.ones(1), view())
    assert "model.here.key needs a contiguous tensor" in caplog.text
    caplog.clear()
    with ir.policy("warn,infini_test::attend=auto"):
        wrapped(torch.ones(1), view(rows=5))
    assert not caplog.records


def test_wrap_and_policy_in_a_compiled_function_leave_no_scope_behind(ops):
    wrapped = ir.wrap(ops.attend, site="compiled.site", policy="strict")
    compiled = torch.compile(lambda x: wrapped(x) + 1, backend="eager")
    assert compiled(torch.ones(3)) == 4
    assert torch.ops.infini.contiguous(torch.ones(2, 3).t(), "after").is_contiguous()

    @torch.compile(backend="eager")
    def scoped(x):
        with ir.policy("strict"):
            return x + 1

    assert torch.equal(scoped(torch.ones(3)), torch.full((3,), 2.0))
    assert torch.ops.infini.contiguous(torch.ones(2, 3).t(), "after").is_contiguous()
