"""Search problems with known truth, and the protocol that any such module follows (`protocol.py`)."""
