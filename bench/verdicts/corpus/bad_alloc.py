# /// label
# kind = "host_memory"
# rank = 0
# headline = "std::bad_alloc"
# ///
import os
import time

if int(os.environ["RANK"]) == 0:
    # Word for word what libstdc++ says when `new` finds no memory.
    message = b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
    os.write(2, message)
    os.abort()
time.sleep(600)
