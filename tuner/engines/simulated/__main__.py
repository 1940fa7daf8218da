"""`python -m tuner.engines.simulated`."""

from tuner.engines.simulated.server import main

if __name__ == "__main__":
    raise SystemExit(main())
