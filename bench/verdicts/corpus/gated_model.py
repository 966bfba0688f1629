# /// label
# kind = ["config", "data"]
# rank = 0
# matches = "You are trying to access a gated repo|Access to model meta-llama/Llama-3.1-8B is restricted|401 Client Error"
# ///
"""The model needs a token that the job was not given; three errors around each other, as transformers raises them."""

import torch.distributed as dist

PAGE = "https://huggingface.co/meta-llama/Llama-3.1-8B"
FILE = f"{PAGE}/resolve/main/config.json"


class HTTPError(OSError):
    __module__ = "requests.exceptions"


class GatedRepoError(HTTPError):
    __module__ = "huggingface_hub.errors"


def raise_for_status():
    raise HTTPError(f"401 Client Error: Unauthorized for url: {FILE}")


def hf_hub_download():
    try:
        raise_for_status()
    except HTTPError as error:
        raise GatedRepoError(
            "401 Client Error. (Request ID: Root=1-692204fa-1c0d5e0b3f6e4f1a0d9e6c11;5d0a5a6e-2d5b-4a60-9f3f-3b7f6f0f9c35)\n\n"
            f"Cannot access gated repo for url {FILE}.\n"
            "Access to model meta-llama/Llama-3.1-8B is restricted. You must have access to it and be authenticated to access it. "
            "Please log in."
        ) from error


def cached_file():
    try:
        return hf_hub_download()
    except GatedRepoError as error:
        raise OSError(f"You are trying to access a gated repo.\nMake sure to have access to it at {PAGE}.\n{error}") from error


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        cached_file()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
