#!/bin/bash
# Workers of one study as a job array:   FREEZETHAW_STORE=postgresql+psycopg://... sbatch examples/slurm/array.sh study.toml
# Every task gives the same command: the first one begins the study, the others join it. See docs/slurm.md.
#SBATCH --job-name=freezethaw
#SBATCH --array=1-8                # eight workers; a second sbatch brings more
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120          # two minutes before the time limit: save the run, give it back, leave
#SBATCH --requeue                  # also where the node is lost or wanted by others
#SBATCH --open-mode=append
#SBATCH --output=worker-%a.txt
set -u
: "${FREEZETHAW_STORE:?must be the URL of a PostgreSQL database that all nodes reach}"

srun freezethaw run "$@" --quiet --grace 110
code=$?
if [ "$code" -eq 3 ]; then         # asked to leave before the study ended: come back when there is time again
  scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
exit "$code"
