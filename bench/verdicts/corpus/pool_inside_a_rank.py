# /// label
# kind = ["user_code", "data"]
# rank = 1
# headline = "ValueError: invalid literal for int() with base 10: '12a'"
# traceback = ["invalid literal for int()"]
# ///
import multiprocessing as mp
from os import environ
from time import sleep


def tokenize(line):
    return [int(word) for word in line.split()]


def prepare(lines):
    with mp.get_context("fork").Pool(2) as pool:
        return pool.map(tokenize, lines, chunksize=4)


if __name__ == "__main__":
    mine = [f"{n} {n + 1} 7" for n in range(64)]
    if environ["RANK"] == "1":
        mine[40] = "11 12a 13"
    print(sum(map(len, prepare(mine))), "tokens", flush=True)
    sleep(600)
