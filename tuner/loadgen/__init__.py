"""The load client: sends a workload to an OpenAI-compatible server and returns what every request saw.

Before the timed part
    vocabulary.py, datasets.py   what prompts are made of
    dialect.py                   how one server wants to be asked
    prompts.py                   workload → request bodies
    ask.py                       which models, how full the prefix cache
In the timed part
    target.py                    the bytes of a request
    wire.py                      one connection: bytes out, stamped bytes in
    driver.py                    closed and open loop over many connections, watching for stalls
    watch.py                     what the client itself costs
After it
    sse.py → record.py           stamped bytes → RequestRecord
Processes
    job.py                       what a load process is asked to do and what it answers
    worker.py, pool.py           the load process, and its caller's side: one process, or several when one would disturb

A load process imports nothing heavier than uvloop and httptools.
"""
