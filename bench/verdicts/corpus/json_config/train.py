# /// label
# kind = "config"
# rank = [0, 1, 2, 3]
# headline = "JSONDecodeError: Expecting ',' delimiter: line 5 column 3"
# certainty = "sure"
# ///
import json


def load_config(path="config.json"):
    with open(path) as file:
        return json.load(file)


config = load_config()
print("epochs", config["epochs"])
