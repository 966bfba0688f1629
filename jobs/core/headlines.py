"""The series that stand for a whole training. Pure."""

# What a list shows of a job, the first of these that it reports. Such a series that is no longer finite has diverged.
HEADLINES = (
    "loss", "train_loss", "train/loss", "loss/train", "val_loss", "reward", "accuracy",
    "tensorboard/loss", "tensorboard/train_loss", "tensorboard/train/loss", "tensorboard/loss/train", "tensorboard/Loss/train",
    "tensorboard/val_loss",
    "printed/loss", "printed/train_loss", "printed/val_loss", "printed/accuracy",  # from files and lines (agent/output/)
)  # fmt: skip


def nan_words(series: str, step: int | None) -> str:
    """Return "loss is NaN since step 20"; empty for no series. Infinite values are called so too."""
    if not series:
        return ""
    return f"{series} is NaN" + ("" if step is None else f" since step {step:,}")
