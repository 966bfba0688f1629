# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "flag --batch_size=large: invalid literal for int() with base 10: 'large'"
#
# [job]
# arguments = ["--batch_size=large", "--model=vit_b16"]
# ///
"""As absl refuses a flag: no traceback, and the code is 1."""

import sys


def parse(given):
    flags = {}
    for one in given:
        name, _, value = one.removeprefix("--").partition("=")
        try:
            flags[name] = int(value) if name == "batch_size" else value
        except ValueError as error:
            sys.stderr.write(f"FATAL Flags parsing error:\n  flag --{name}={value}: {error}\n")
            sys.stderr.write("Pass --helpshort or --helpfull to see help on flags.\n")
            sys.exit(1)
    return flags


print("training with", parse(sys.argv[1:]))
