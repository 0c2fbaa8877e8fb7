"""When: the Prefect flows and tasks, their deployments and artifacts, and the command line."""
