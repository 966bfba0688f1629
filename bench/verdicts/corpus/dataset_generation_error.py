# /// label
# kind = "data"
# rank = 0
# matches = "DatasetGenerationError: An error occurred while generating the dataset|JSON parse error: Column\\(/answer\\) changed from string to array in row 118"
# ///
"""As Hugging Face's datasets fails on a bad file: an error class of its own around the reader's, while the others wait for rank 0."""

import os

import torch.distributed as dist


class ArrowInvalid(ValueError):
    __module__ = "pyarrow.lib"


class DatasetGenerationError(Exception):
    __module__ = "datasets.exceptions"


def read_table(path, block):
    if block == 3:
        raise ArrowInvalid("JSON parse error: Column(/answer) changed from string to array in row 118")
    return [{"question": "?", "answer": "!"}] * 100


def generate_tables(paths):
    for path in paths:
        for block in range(10):
            try:
                yield read_table(path, block)
            except ArrowInvalid as error:
                print(f"Failed to load JSON from file '{path}' with error {type(error)}: {error}", flush=True)
                raise


def prepare_split(paths):
    rows = 0
    try:
        for table in generate_tables(paths):
            rows += len(table)
            print(f"Generating train split: {rows} examples", end="\r", flush=True)
    except Exception as error:
        raise DatasetGenerationError("An error occurred while generating the dataset") from error
    return rows


def main():
    dist.init_process_group("gloo")
    if int(os.environ["RANK"]) == 0:
        prepare_split(["/data/qa/train-00000-of-00002.jsonl", "/data/qa/train-00001-of-00002.jsonl"])
    dist.barrier()


if __name__ == "__main__":
    main()
