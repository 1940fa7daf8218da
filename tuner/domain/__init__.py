"""What things are: the nouns of tuner. No I/O; knows pydantic, the standard library, errors and YAML documents."""
