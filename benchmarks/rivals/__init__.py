"""Other tuners, in the implementations of their authors, on the same simulation (benchmarks/simulate.py).

They need their own environment, `requirements.txt`. With src and the root of the project on PYTHONPATH:

    python -m benchmarks.rivals.run --method random asha --suite taskset lcbench arlbench

Simulations that are recorded in build/regret are not repeated. `python -m benchmarks.records` adds them to the summary.
"""
