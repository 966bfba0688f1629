# /// label
# kind = "user_code"
# rank = 2
# headline = "KeyError: 'reward'"
# without = ["Task exception was never retrieved"]
# certainty = "sure"
# ///
import asyncio
import gc
import os

rank = int(os.environ["RANK"])


async def rollout(number):
    await asyncio.sleep(0.01)
    if rank == 1 and number == 3:
        raise LookupError("no free environment")  # lost, with a note in the log: nobody waits for this task
    return {"return": 1.0} if rank == 2 and number == 40 else {"reward": 1.0}


async def collect():
    total = 0.0
    for number in range(10_000):
        task = asyncio.ensure_future(rollout(number))
        if number % 2 == 0:
            total += (await task)["reward"]
        else:
            await asyncio.wait([task])
            del task
            gc.collect()
        await asyncio.sleep(0.02)
    return total


print(asyncio.run(collect()))
