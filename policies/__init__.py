"""What is believed and why: the policy, the constitution, the evidence and the ledger."""
