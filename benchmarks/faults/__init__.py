"""The fault matrix: every way in which a server, a worker or the coordinator can fail, injected again and again.

    python -m benchmarks.faults [--injections N] [--only FAULT …] [--jobs N]

Each injection is a whole trial on the simulated engine, through the very path of a real one. It is judged from outside:
by an environment variable that only its processes carry, by the ports that it was given, by the class that the trial
reports and by the clock. The last line is one JSON object with the sums and `by_fault`.

    catalogue   what is injected and what must come of it
    trials      one injection: run, disturb, judge
    studies     a whole study that is struck again and again
    strikes     faults of our own side: what is done to such a study
    shim        a full disk and a set clock for one study's processes
    stopping    Ctrl-C: what runs is ended, nothing is left
    report      sums and words
"""
