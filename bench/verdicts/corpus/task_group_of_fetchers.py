# /// label
# kind = "user_code"
# rank = 0
# matches = "unhandled errors in a TaskGroup|ValueError: shard 3 answered with 0 rows"
# certainty = "sure"
# ///
import asyncio
import os


async def fetch(shard: int) -> int:
    await asyncio.sleep(0.1 * shard)
    rows = 0 if shard == 3 and os.environ["RANK"] == "0" else 128
    if not rows:
        raise ValueError(f"shard {shard} answered with {rows} rows")
    return rows


async def epoch() -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fetch(shard), name=f"shard-{shard}") for shard in range(6)]
    print(sum(task.result() for task in tasks), "rows", flush=True)


async def main() -> None:
    await epoch()
    await asyncio.Event().wait()


asyncio.run(main())
