# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "Could not find 'optim/sgd'"
# without = ["HYDRA_FULL_ERROR"]
#
# [job]
# arguments = ["trainer.epochs=90", "+model.pretrained=true"]
# ///
"""Composed configuration in the manner of Hydra: groups of files, overrides on the command line, errors without a traceback."""

import functools
import json
import sys
from pathlib import Path

CONF = Path(__file__).parent / "conf"


class ConfigCompositionException(Exception):
    pass


def compose(overrides):
    root = json.loads((CONF / "config.json").read_text())
    for group in root.pop("defaults"):
        path = CONF / f"{group}.json"
        if not path.exists():
            near = ", ".join(sorted(p.stem for p in CONF.rglob("*.json")))
            raise ConfigCompositionException(f"Could not find '{group}'\n\nAvailable options:\n\t{near}")
        root[group.partition("/")[0]] = json.loads(path.read_text())
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        node = functools.reduce(lambda tree, part: tree[part], key.split(".")[:-1], root)
        node[key.split(".")[-1]] = value
    return root


def main(job):
    @functools.wraps(job)
    def decorated():
        try:
            config = compose(sys.argv[1:])
        except ConfigCompositionException as error:
            print(error, file=sys.stderr)
            print("\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.", file=sys.stderr)
            sys.exit(1)
        return job(config)

    return decorated


@main
def train(config):
    print("training", config["model"]["depth"])


train()
