"""The experiments of Swersky, Snoek and Adams (2014), with their baseline and their figures.

    python -m experiments.compare --problem pmf --method paper --seeds 5      raw records in build/paper-results
    python -m experiments.draw                                                figures, from what is kept
    python -m experiments.findings                                            docs/findings.md, from what is kept

`make paper` does all of it, `make paper QUICK=1` a small version in a few minutes.
"""
