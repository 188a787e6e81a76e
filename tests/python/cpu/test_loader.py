"""Loading: which flavour, what is said where something is missing, and what the environment may say."""

import json
import logging
import os
import time

import pytest
import torch
from infini_rearrange import _loader


def test_the_versions_it_was_built_for_are_those_installed():
    assert _loader.built_for()["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("built", "torch_version", "npu_version", "words"),
    [
        ({"torch": "2.9.0", "torch_npu": None}, "2.10.0", None, "was built for torch 2.9.0, but torch 2.10.0"),
        ({"torch": "2.10.0", "torch_npu": "2.10.0"}, "2.10.0", "2.10.0.post4", "torch-npu 2.10.0, but torch-npu 2.10"),
        ({"torch": "2.10.0", "torch_npu": None}, "2.10.0", "2.10.0.post4", "without torch_npu, but torch-npu"),
    ],
)
def test_a_library_for_other_versions_says_how_to_build_it_again(built, torch_version, npu_version, words):
    with pytest.raises(ImportError, match=words) as raised:
        _loader.check_versions(built, torch_version, npu_version)
    assert "pip install --no-build-isolation" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_versions_that_fit_pass():
    _loader.check_versions({"torch": "2.10.0", "torch_npu": "2.10.0.post4"}, "2.10.0", "2.10.0.post4")
    _loader.check_versions({"torch": "2.10.0", "torch_npu": "2.10.0.post4"}, "2.10.0", None)


def test_a_library_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr(_loader, "_HERE", tmp_path)
    with pytest.raises(ImportError, match="is not built: in its source tree, pip install"):
        _loader.load()
    (tmp_path / "_built_for.json").write_text(json.dumps({"torch": torch.__version__, "torch_npu": None}))
    with pytest.raises(ImportError, match="has no library for torch"):
        _loader.load()
    (tmp_path / "_lib_torch.abi3.so").write_bytes(b"not a library")
    with pytest.raises(ImportError, match="cannot load _lib_torch"):
        _loader.load()


def test_torch_npu_without_cann(in_new_process):
    # torch_npu is installed in this environment, and CANN is not in this world.
    ended = in_new_process("print(ir._FLAVOUR)")
    assert ended.stdout.strip() == "torch"
    assert "torch_npu is installed but cannot be loaded" in ended.stderr
    assert "source CANN's set_env.sh" in ended.stderr
    # torch itself loads torch_npu unless told otherwise, and fails.
    ended = in_new_process("", check=False, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    assert ended.returncode != 0
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: torch cannot load torch_npu")
    assert "set_env.sh" in last


def test_without_torch_npu(in_new_process):
    hide = (
        "import importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda n, *a: None if n == 'torch_npu' else find(n, *a)"
    )
    ended = in_new_process(
        "from infini_rearrange import _loader; print(ir._FLAVOUR, _loader.npu_missing())", before=hide
    )
    assert ended.stdout.startswith("torch torch_npu is not installed: pip install")
    assert "infini_rearrange" not in ended.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("INFINI_CONTIGUITY", "warm", '"warm" at column 1'),
        ("INFINI_CONTIGUITY", "auto,npu_mrope.query=x", "column 22"),
        ("INFINI_PROFILE", "everything", "allowed: count, time, time:1/N (one copy in N), off"),
        ("INFINI_CONTRACTS", "/nowhere/contracts.toml", "/nowhere/contracts.toml"),
    ],
)
def test_a_wrong_environment_stops_the_import(in_new_process, variable, value, words):
    ended = in_new_process("", check=False, **{variable: value})
    assert ended.returncode != 0
    assert words in ended.stderr
    assert variable in ended.stderr


def test_wrong_contracts_stop_the_import_with_the_position(in_new_process, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('["my::op"]\nx = "contigous"\n')
    ended = in_new_process("", check=False, INFINI_CONTRACTS=str(file))
    assert ended.returncode != 0
    assert f"{file}:2:5" in ended.stderr
    assert "contiguous, rows, outer(N)" in ended.stderr


def test_the_environments_policy_holds_for_every_thread(in_new_process):
    code = """
import threading, torch
def call():
    try: torch.ops.infini.contiguous(torch.ones(2, 3).t(), "a.b")
    except ir.NonContiguousError as error: print(str(error).splitlines()[-1])
threads = [threading.Thread(target=call) for _ in range(2)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
"""
    said = in_new_process(code, INFINI_CONTIGUITY="auto,a.*=strict").stdout
    assert said.count('INFINI_CONTIGUITY="a.*=strict"') == 2


def test_profile_off_counts_nothing(in_new_process):
    code = 'import torch; torch.ops.infini.rearrange(torch.ones(2)); print(len(ir.profile()["sites"]))'
    assert in_new_process(code).stdout.strip() == "1"
    assert in_new_process(code, INFINI_PROFILE="off").stdout.strip() == "0"


def test_the_profile_is_written_at_exit(in_new_process, tmp_path):
    folder = tmp_path / "profiles"
    in_new_process(
        "import torch; torch.ops.infini.rearrange(torch.ones(2), site='a.b')", INFINI_PROFILE_DIR=str(folder), RANK="3"
    )
    (file,) = folder.glob("infini-profile-rank3-*.json")
    assert json.loads(file.read_text())["sites"][0]["site"] == "a.b"
    (tmp_path / "file").write_text("")
    ended = in_new_process("", INFINI_PROFILE_DIR=str(tmp_path / "file"))
    assert "the profile was not written" in ended.stderr


def test_a_forked_child_works_and_counts_for_itself(in_new_process):
    code = """
import os, torch
torch.ops.infini.rearrange(torch.ones(3, 2).t(), site="a.b")
pid = os.fork()
if pid == 0:
    torch.ops.infini.rearrange(torch.ones(3, 2).t(), site="a.b")
    print(ir.profile()["sites"][0]["copied"], flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(ir.profile()["sites"][0]["copied"])
"""
    assert in_new_process(code).stdout.split() == ["2", "1"]


def test_no_handler_is_installed_and_levels_are_obeyed(caplog):
    logger = logging.getLogger("infini_rearrange")
    assert logger.handlers == []
    import infini_rearrange as ir

    logger.setLevel(logging.ERROR)
    try:
        with ir.policy("warn"):
            torch.ops.infini.contiguous(torch.ones(2, 3).t(), f"quiet.{time.time()}")
    finally:
        logger.setLevel(logging.NOTSET)
    assert not caplog.records
    assert os.environ.get("INFINI_CONTIGUITY") is None
