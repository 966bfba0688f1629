# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "the following arguments are required: --data-dir"
# ///
import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--data-dir", required=True, help="where the shards lie")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--compile", action="store_true")
options = parser.parse_args()
print(os.listdir(options.data_dir))
