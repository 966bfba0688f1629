# /// label
# kind = ["user_code", "connection_lost", "data", "config"]
# rank = 1
# headline = "Connection refused"
# ///
import os
import time
import urllib.request

rank = int(os.environ["RANK"])
if rank == 1:
    urllib.request.urlopen("http://127.0.0.1:1/tokenizers/latest.json", timeout=5)
time.sleep(600)
