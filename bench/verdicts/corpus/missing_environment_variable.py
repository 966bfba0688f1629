# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "KeyError: 'TOKENIZER_BUCKET'"
# certainty = "sure"
# ///
import os

bucket = os.environ["TOKENIZER_BUCKET"]
print("tokenizer from", bucket)
