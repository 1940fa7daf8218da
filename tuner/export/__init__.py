"""From what was measured to what can be served: the front, and its configurations in every format."""
