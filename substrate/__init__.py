"""What is forked, run and measured: the store, forks, the jail, runs and measurements."""
