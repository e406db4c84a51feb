"""Worker processes of the kit, in which the target's code runs.

controller.py     the kit's side: forks workers, sends them jobs, waits for reports
fork_server.py    the process they are forked from, with the target imported
worker.py         a worker's main loop; callers.py runs the callers of a job, interleaving.py stops one of them
messages.py       jobs and reports, as values
instance.py       one opened instance of the target
fresh_process.py  steps in a fresh `python -c`
shifted_clock.py  a wall clock of its own for one process
fake_model.py     the model that a compaction asks for a summary
process_limits.py limits on files and on their size; process_usage.py handles, threads and memory in use
"""
