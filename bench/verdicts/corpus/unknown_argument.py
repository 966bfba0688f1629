# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "unrecognized arguments: --learning-rte 0.1"
#
# [job]
# arguments = ["--epochs", "3", "--learning-rte", "0.1"]
# ///
import argparse

parser = argparse.ArgumentParser(description="Trains a language model.")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--learning-rate", type=float, default=0.001, dest="lr")
options = parser.parse_args()
print(options.epochs, options.lr)
