from data import batches

WIDTH = len(batches()[0])
