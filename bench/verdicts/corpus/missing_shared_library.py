# /// label
# kind = "import_error"
# rank = [0, 1, 2, 3]
# headline = "libnvrtc-builtins.so.11.8: cannot open shared object file: No such file or directory"
# ///
import ctypes
import os

print("rank", os.environ["RANK"], "loads the fused kernels", flush=True)
kernels = ctypes.CDLL("libnvrtc-builtins.so.11.8")
kernels.fused_adam()
