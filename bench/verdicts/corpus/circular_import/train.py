# /// label
# kind = "import_error"
# rank = [0, 1, 2, 3]
# headline = "ImportError: cannot import name 'WIDTH' from partially initialized module 'model'"
# certainty = "sure"
# ///
import model

print(model.WIDTH)
