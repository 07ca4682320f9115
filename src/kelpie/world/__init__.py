"""The outside world: a few ports, and the real adapters behind them.

Product code takes everything it cannot compute from one `World`; only this package and `sim` may touch the raw sources.
"""
