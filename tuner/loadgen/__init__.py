"""The load client: sends a workload to an OpenAI-compatible server and returns what every request saw.

    prompts.py   workload → request bodies           (before the timed part)
    wire.py      one connection: bytes out, stamped bytes in
    driver.py    closed and open loop over many connections, watching for stalls
    watch.py     what the client itself cost
    sse.py       stamped bytes → RequestRecord       (after the timed part)
    worker.py    the load process; pool.py starts one, or several when one would disturb the result

A load process imports nothing heavier than uvloop and httptools.
"""
