# /// label
# kind = "signal"
# rank = 1
# matches = "Fatal Python error: .*gradient arena is corrupted|SIGABRT"
# ///
import ctypes
import os
import time

rank = int(os.environ["RANK"])
print("warming up", flush=True)
time.sleep(1 if rank == 1 else 600)
ctypes.pythonapi.Py_FatalError(b"gradient arena is corrupted")
