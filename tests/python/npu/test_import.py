"""Importing and installing leave the device alone: a server still sets its visible devices afterwards."""

import subprocess
import sys

CODE = """
import ctypes, os
import torch
library = ctypes.CDLL(os.environ["CANN_SIM_LIBRARY"])
library.cann_sim_calls.restype = ctypes.c_uint64
NAMES = (b"aclrtSetDevice", b"aclrtMalloc", b"aclrtMallocAlign32", b"aclrtGetSocName", b"aclInit")
before = [library.cann_sim_calls(name) for name in NAMES]
import infini_rearrange as ir
assert "npu::npu_fused_infer_attention_score" in ir.install()
ir.wrap(torch.ops.npu.npu_mrope)
with ir.policy("warn"):
    pass
ir.profile()
assert not torch.npu.is_initialized()
assert [library.cann_sim_calls(name) for name in NAMES] == before, "the device was touched"
pid = os.fork()
if pid == 0:
    # Fork-safe: a child may start using the device after its parent imported everything.
    x = torch.arange(6.0).reshape(2, 3).npu()
    assert torch.equal(torch.ops.infini.rearrange(x.t()).cpu(), x.cpu().t())
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
torch.ones(1).npu()
assert library.cann_sim_calls(b"aclrtSetDevice") > before[0], "the counter would have shown it"
print("done", ir._FLAVOUR)
"""


def test_import_and_install_touch_no_device():
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert ended.stdout.strip() == "done torch_npu", ended.stderr
