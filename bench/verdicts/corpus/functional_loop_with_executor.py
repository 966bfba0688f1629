# /// label
# kind = "user_code"
# rank = 1
# headline = "LookupError: unknown encoding: utf-9"
# certainty = "sure"
# ///
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from os import environ
from time import sleep

encode = lambda encoding, text: len(text.encode(encoding))  # noqa: E731
encodings = (environ["RANK"] == "1" and n == 6 and "utf-9" or "utf-8" for n in count())

with ThreadPoolExecutor(2) as pool:
    for n, encoding in enumerate(encodings):
        print(n, sum(pool.map(partial(encode, encoding), ["ab", "cd"])), flush=True)
        sleep(0.1)
