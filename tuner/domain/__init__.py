"""What things are: the nouns of tuner. No I/O; imports only pydantic and the standard library."""
