# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "IndentationError: unexpected indent"
# certainty = "sure"
# ///
import os

print("rank", os.environ["RANK"], "starts", flush=True)

from models import Encoder

print(Encoder())
