# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "NameError: name 'val_loader' is not defined"
# certainty = "sure"
# ///
# In[1]:
import random

random.seed(0)
train_loader = [[random.random() for _ in range(8)] for _ in range(20)]

# In[2]:
w = 0.0
for x in train_loader:
    w += sum(x) / len(x) * 0.01
print("w =", w)

# In[7]:
correct = sum(w > 0.1 for x in val_loader)
print("accuracy", correct / 20)
