"""The command line: demo and doctor on the simulated NPU, doctor without CANN, report on profiles good and bad."""

import json
import os
import subprocess
import sys
from pathlib import Path

import infini_rearrange as ir
import pytest
import strided
import torch

ROOT = Path(__file__).parents[3]
PROGRAM = Path(sys.executable).with_name("infini-rearrange")


def run(*arguments, timeout=300, **environment):
    full = {name: value for name, value in (os.environ | environment).items() if value is not None}
    return subprocess.run([PROGRAM, *arguments], env=full, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


WITHOUT_CANN = {"LD_LIBRARY_PATH": None, "ASCEND_HOME_PATH": None, "ASCEND_OPP_PATH": None, "CANN_SIM_LIBRARY": None}


@pytest.mark.timeout(600)
def test_demo():
    """Started where there is no NPU, as `make demo` is."""
    ended = run("demo", "--json", "--sim", str(ROOT / "tests/cann-sim/run"), timeout=550, **WITHOUT_CANN)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["simulated"] is True
    scenes = found["scenes"]
    outcomes = [scene["outcome"] for scene in scenes]
    assert outcomes == ["refused", "wrong", "right", "right", "right", "right", "refused"]
    assert [scene["cann"] for scene in scenes] == ["9.1.0", "9.1.0.pre", "9.1.0", "9.1.0.pre", *["9.1.0"] * 3]
    assert {scene["soc"] for scene in scenes} == {"Ascend950PR_9599"}
    operator, strict, warn = scenes[0], scenes[-1], scenes[5]
    assert operator["raised"] == "RuntimeError"
    assert "EZ0037" in operator["message"]
    assert strict["raised"] == "NonContiguousError"
    assert "npu_fused_infer_attention_score.key " in strict["message"]
    assert any("needs a contiguous tensor; copied" in line for line in warn["said"])
    copied = {site["site"]: site["copied"] for site in warn["profile"]["sites"]}
    for argument in ("key", "key_rope", "value"):
        assert copied[f"npu_fused_infer_attention_score.{argument}"] == 1
    assert scenes[1]["profile"]["sites"] == []


def test_demo_without_npu_says_what_to_do():
    ended = run("demo", **WITHOUT_CANN)
    assert ended.returncode == 1
    assert "no NPU here" in ended.stderr
    assert "--sim tests/cann-sim/run" in ended.stderr


def test_doctor_on_the_npu():
    ended = run("doctor", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["npu"] is True
    assert found["problems"] == []
    assert found["flavour"] == "torch_npu"
    library = found["library"]
    assert library["soc"] == os.environ.get("CANN_SIM_SOC", "Ascend910B1")
    assert library["cann"] == os.environ.get("CANN_SIM_VERSION", "9.1.0")
    assert "npu::npu_fused_infer_attention_score" in found["hooked"]
    operators = {operator["operator"]: operator for operator in library["contracts"]}
    fused = operators["npu::npu_fused_infer_attention_score"]
    key = next(argument for argument in fused["arguments"] if argument["argument"] == "key")
    by_table = {bool(row["present"]): (row["contract"], row["unmet"]) for row in key["rows"]}
    assert by_table == {False: ("contiguous", "refuses"), True: ("cache", "refuses")}


def test_doctor_as_text():
    ended = run("doctor")
    assert ended.returncode == 0, ended.stderr
    assert "an NPU is there" in ended.stdout
    assert "key with block_table: cache / refuses" in ended.stdout
    assert "PROBLEM" not in ended.stdout


@pytest.mark.parametrize("autoload", ["0", None], ids=["autoload off", "autoload on"])
def test_doctor_without_cann(autoload):
    ended = run("doctor", "--json", **WITHOUT_CANN, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    found = json.loads(ended.stdout)
    assert ended.returncode == (0 if autoload else 1), ended.stderr
    (problem,) = found["problems"]
    assert "source CANN's set_env.sh before starting Python" in problem
    assert "libhccl.so" in problem
    if autoload:
        assert found["npu"] is False
        assert found["library"]["soc"] is None
    else:
        assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in problem
    assert "Traceback" not in ended.stderr


def make_profile(path):
    """A real profile: two copies at a site, and a hidden one."""
    ir.reset_profile()
    x = strided.wider_rows(torch.ones(6, 64, device="npu:0"))
    for _ in range(2):
        ir.contiguous(x, "model.attention.key")
    ir.install()
    try:
        cos = torch.ones(1, 1, 6, 64, dtype=torch.bfloat16, device="npu:0")
        torch.ops.npu.npu_interleave_rope(strided.transposed(torch.cat([cos, cos], 1)), cos, cos)
    finally:
        ir.uninstall()
    ir.save_profile(path)


def test_report_of_saved_profiles(tmp_path):
    make_profile(tmp_path / "a.json")
    make_profile(tmp_path / "b.json")
    ended = run("report", str(tmp_path), "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert len(found["processes"]) == 2
    assert found["errors"] == []
    sites = {site["site"]: site for site in found["sites"]}
    key = sites["model.attention.key"]
    assert (key["copied"], key["bytes_copied"]) == (4, 4 * 6 * 64 * 4)
    assert sites["npu_interleave_rope.x"]["hidden"] == 2
    assert [site["site"] for site in found["sites"]][0] == "model.attention.key"
    text = run("report", str(tmp_path))
    assert text.returncode == 0
    assert "2 process(es)" in text.stdout
    row = next(line for line in text.stdout.splitlines() if line.startswith("model.attention.key "))
    assert "6.1 kB" in row
    assert "avoid:" in text.stdout


def malformed(good):
    """Texts that are no profile, each with a word of what is to be said."""
    site = good["sites"][0]
    layout = (site.get("layouts") or [{}])[0]
    return {
        "not JSON": ("{", "not JSON"),
        "empty": ("", "not JSON"),
        "not text": (b"\xff\xfe\x00", "not JSON"),
        "a list": ("[]", "not a profile"),
        "other schema": (json.dumps(good | {"schema": "other"}), "not a profile"),
        "later version": (json.dumps(good | {"version": 99}), "version 99"),
        "sites no list": (json.dumps(good | {"sites": {}}), '"sites" must be a list'),
        "site no object": (json.dumps(good | {"sites": [3]}), '"sites"'),
        "negative": (json.dumps(good | {"sites": [site | {"copied": -1}]}), "copied must be a whole number"),
        "a text": (json.dumps(good | {"sites": [site | {"bytes_copied": "9"}]}), "bytes_copied must be a whole number"),
        "a fraction": (json.dumps(good | {"sites": [site | {"calls": 1.5}]}), "calls must be a whole number"),
        "layouts no list": (json.dumps(good | {"sites": [site | {"layouts": 5}]}), "layout"),
        "layout no object": (json.dumps(good | {"sites": [site | {"layouts": ["x"]}]}), "layout"),
        "layout without fields": (json.dumps(good | {"sites": [site | {"layouts": [{}]}]}), "layout"),
        "count a text": (json.dumps(good | {"sites": [site | {"layouts": [layout | {"count": "x"}]}]}), "layout"),
        "shape a number": (json.dumps(good | {"sites": [site | {"layouts": [layout | {"shape": 3}]}]}), "layout"),
        "strides of text": (
            json.dumps(good | {"sites": [site | {"layouts": [layout | {"strides": ["a"]}]}]}),
            "layout",
        ),
        "diagnosis a number": (
            json.dumps(good | {"sites": [site | {"layouts": [layout | {"diagnosis": 3}]}]}),
            "layout",
        ),
        "process no object": (json.dumps(good | {"process": 3}), "process"),
        "nested without end": ("[" * 100_000, "not JSON"),
        "huge number": ('{"sites": ' + "9" * 6000 + "}", ""),
    }


NAMES = list(malformed({"sites": [{}]}))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "good.json"
    make_profile(path)
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_report_of_a_malformed_profile(name, good, tmp_path, capsys):
    """In this process, since each start costs seconds; the good file beside the bad one is still shown."""
    from infini_rearrange_cli.main import main

    text, says = malformed(good)[name]
    bad = tmp_path / "bad.json"
    bad.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["report", str(bad)]) == 1
    alone = capsys.readouterr()
    assert "bad.json" in alone.err
    assert says in alone.err
    (tmp_path / "good.json").write_text(json.dumps(good))
    assert main(["report", str(tmp_path)]) == 0
    both = capsys.readouterr()
    assert "1 process(es)" in both.out
    assert "bad.json" in both.err


def test_report_of_nothing(tmp_path, capsys):
    from infini_rearrange_cli.main import main

    assert main(["report", str(tmp_path)]) == 1
    assert f"no profile (*.json) in {tmp_path}" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "missing.json")]) == 1
    assert "missing.json: No such file or directory" in capsys.readouterr().err
    with pytest.raises(RuntimeError):
        ir.save_profile(tmp_path / "no" / "such" / "folder.json")
