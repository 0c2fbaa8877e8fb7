"""For every test: nothing that we start reports to anybody, no person's state is touched."""

import os
import tempfile

os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("SEEDBED_HOME", os.path.join(tempfile.gettempdir(), "seedbed-tests"))
