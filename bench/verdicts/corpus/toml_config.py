# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "TOMLDecodeError: Invalid value (at line 3, column 9)"
# ///
import tomllib

EXPERIMENT = """
[optimizer]
betas = (0.9, 0.95)
weight_decay = 0.1
"""

settings = tomllib.loads(EXPERIMENT)
print(settings["optimizer"]["betas"])
