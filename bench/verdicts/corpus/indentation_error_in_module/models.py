from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
         self.embed = nn.Embedding(100, 16)
