# /// label
# kind = "import_error"
# rank = [0, 1, 2, 3]
# matches = "undefined symbol: _ZN3c105ErrorC2|Failed to import transformers.models.llama.modeling_llama"
# ///
"""An extension that was built for another torch; transformers wraps what the loader says into a RuntimeError."""

EXTENSION = "/opt/conda/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
SYMBOL = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


def load_extension():
    raise ImportError(f"{EXTENSION}: undefined symbol: {SYMBOL}", name="flash_attn_2_cuda", path=EXTENSION)


def get_module(name):
    try:
        return load_extension()
    except Exception as error:
        raise RuntimeError(
            f"Failed to import transformers.{name} because of the following error (look up to see its traceback):\n{error}"
        ) from error


print("loading meta-llama/Llama-3.1-8B", flush=True)
get_module("models.llama.modeling_llama")
