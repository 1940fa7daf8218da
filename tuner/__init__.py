"""tuner: finds, proves and exports the fastest safe settings for LLM servers."""

__version__ = "0.1.0"
