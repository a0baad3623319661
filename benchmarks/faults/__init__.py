"""Fault tests of the store: real worker processes that are killed, stopped, or have a wrong clock.

python -m benchmarks.faults                 all of it, on SQLite and PostgreSQL; benchmarks/results/faults.json
python -m benchmarks.faults --share 0.1     a tenth of each count, as the tests do
python -m benchmarks.faults --worker ...    one worker (see worker.py)
"""
