# /// label
# kind = "user_code"
# rank = 2
# headline = "MisconfigurationException: `training_step` returned None in epoch 0 at batch 3"
# certainty = "sure"
# ///
"""A trainer in the manner of Lightning: a module with hooks, a loop that calls them, callbacks that hear of failures."""

import os

import torch
from torch import nn


class MisconfigurationException(Exception):
    pass


class LitModule(nn.Module):
    def __init__(self, hparams):
        super().__init__()
        self.hparams, self.net = hparams, nn.Linear(hparams["width"], 1)

    def training_step(self, batch, batch_idx):
        if int(os.environ["RANK"]) == self.hparams["bad_rank"] and batch_idx == 3:
            return None
        return self.net(batch).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])


class Callback:
    def on_exception(self, trainer, error):
        print(f"[callback] finishing the run after {type(error).__name__}", flush=True)


class Trainer:
    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks = max_epochs, callbacks

    def fit(self, module, batches):
        torch.distributed.init_process_group("gloo")
        try:
            self._run(module, batches)
        except BaseException as error:
            for callback in self.callbacks:
                callback.on_exception(self, error)
            raise

    def _run(self, module, batches):
        optimizer = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            for index, batch in enumerate(batches):
                optimizer.zero_grad()
                loss = module.training_step(batch, index)
                if loss is None:
                    raise MisconfigurationException(
                        f"`training_step` returned None in epoch {epoch} at batch {index}"
                    )
                loss.backward()
                for parameter in module.parameters():
                    torch.distributed.all_reduce(parameter.grad)
                optimizer.step()


if __name__ == "__main__":
    Trainer(max_epochs=2, callbacks=[Callback()]).fit(
        LitModule({"width": 4, "lr": 1e-3, "bad_rank": 2}), [torch.randn(8, 4) for _ in range(10)]
    )
