"""Background work for all agents: cleanup, expiry of approvals, callbacks of runs."""
