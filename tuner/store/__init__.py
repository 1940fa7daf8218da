"""What is remembered: studies, attempts, measurements, artifacts, exports – in one database, named by one URL.

The tables `tuner_*` are the record; Optuna's tables in the same database are the sampler's notebook and the
dashboard's feed. Only the coordinator writes; workers never open the database.
"""

from tuner.store.store import Store, open_store
from tuner.store.urls import default_url, driver_url, shown_url

__all__ = ["Store", "default_url", "driver_url", "open_store", "shown_url"]
