# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "2 validation errors for TrainConfig"
#
# [job]
# arguments = ["optimizer.learning_rate=-0.0003", "precision=bf17", "epochs=3"]
# ///
"""As pydantic refuses a configuration: one exception whose message goes on for several lines."""

import sys

PAGE = "    For further information visit https://errors.pydantic.dev/2.11/v/"


class ValidationError(ValueError):
    __module__ = "pydantic_core._pydantic_core"


def validate(given):
    found = []
    rate = float(given["optimizer.learning_rate"])
    if not rate > 0:
        found += [
            "optimizer.learning_rate",
            f"  Input should be greater than 0 [type=greater_than, input_value='{rate}', input_type=str]",
            f"{PAGE}greater_than",
        ]
    if given["precision"] not in ("fp32", "bf16", "fp16"):
        found += [
            "precision",
            f"  Input should be 'fp32', 'bf16' or 'fp16' [type=literal_error, input_value='{given['precision']}', input_type=str]",
            f"{PAGE}literal_error",
        ]
    if found:
        raise ValidationError("\n".join([f"{len(found) // 3} validation errors for TrainConfig", *found]))
    return given


def main():
    config = validate(dict(one.split("=", 1) for one in sys.argv[1:]))
    print("training with", config)


if __name__ == "__main__":
    main()
