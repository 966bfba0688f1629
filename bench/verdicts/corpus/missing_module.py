# /// label
# kind = "import_error"
# rank = [0, 1, 2, 3]
# headline = "ModuleNotFoundError: No module named 'flash_attn_interface'"
# certainty = "sure"
# ///
import os

import flash_attn_interface

print("rank", os.environ["RANK"])
flash_attn_interface.warm_up()
