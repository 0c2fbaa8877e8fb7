"""For every test: nothing that we start reports to anybody, no person's state is touched. And
torch has one thread: on models and matrices this small, threads wait for each other most of the
time, on a busy machine nearly all of it.
"""

import os
import tempfile

os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ.setdefault("SEEDBED_HOME", os.path.join(tempfile.gettempdir(), "seedbed-tests"))
