# /// label
# kind = "user_code"
# rank = 2
# matches = "EvaluationError: evaluation failed at step 4|ZeroDivisionError: division by zero"
# traceback = ["ZeroDivisionError: division by zero", "EvaluationError: evaluation failed at step 4"]
# certainty = "sure"
# ///
import torch
import torch.distributed as dist


class EvaluationError(Exception):
    pass


def accuracy(correct, seen):
    return correct / seen


def evaluate(step, rank):
    try:
        return accuracy(7, 0 if rank == 2 and step == 4 else 10)
    except ZeroDivisionError as error:
        raise EvaluationError(f"evaluation failed at step {step}") from error


dist.init_process_group("gloo")
for step in range(10):
    score = torch.tensor(evaluate(step, dist.get_rank()))
    dist.all_reduce(score)
    print("accuracy", score.item() / 4, flush=True)
