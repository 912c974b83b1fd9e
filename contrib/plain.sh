#!/bin/bash
# hvdrun on this machine: contrib/plain.sh ./train --steps 1000
#
# RANKS is the number of ranks, for example one for each GPU. Each line of output begins with its rank. After a failure the job is
# started again, at most three times; a program with checkpoints continues from the last one.
exec hvdrun -np "${RANKS:-4}" --tag rank --max-restarts 3 "$@"
