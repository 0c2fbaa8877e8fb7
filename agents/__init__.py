"""Who decides: the workers, the collector, the meta-agent and the models behind them."""
