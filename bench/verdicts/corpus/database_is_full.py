# /// label
# kind = "disk"
# rank = 0
# headline = "sqlite3.OperationalError: database or disk is full"
# certainty = "sure"
# ///
import os
import sqlite3
import tempfile
import time

if int(os.environ["RANK"]) > 0:
    time.sleep(600)
runs = sqlite3.connect(os.path.join(tempfile.mkdtemp(), "mlruns.db"))
runs.execute("PRAGMA max_page_count = 40")
runs.execute("CREATE TABLE metric (step INTEGER, name TEXT, value REAL, note TEXT)")
for step in range(10_000):
    runs.execute("INSERT INTO metric VALUES (?, 'loss', 0.5, ?)", (step, "x" * 100))
    runs.commit()
