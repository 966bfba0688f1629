# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# matches = 'ScannerError: mapping values are not allowed here|config\.yaml.* line 5'
# certainty = "sure"
# ///
from pathlib import Path

import yaml

with Path("config.yaml").open() as file:
    config = yaml.safe_load(file)
print("training", config["model"])
