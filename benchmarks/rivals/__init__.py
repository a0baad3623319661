"""Other tuners, each its authors' own implementation, at the very game that ours plays (benchmarks/simulate.py).

They need an environment of their own, `requirements.txt`; there, with src and the project's root on PYTHONPATH:

    python -m benchmarks.rivals.play --method random asha --suite taskset lcbench arlbench

What is recorded already is not played again. `benchmarks.regret --report` prints these records beside ours.
"""
