"""What `bench/turn.py` is made of: the server under test, and the loads it is put under."""
