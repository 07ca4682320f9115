"""The outside world: a handful of ports, and the real adapters behind them.

Product code takes everything it cannot compute from one `World`; only this room and `sim` may touch the raw sources.
"""
