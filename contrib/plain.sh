#!/bin/bash
# hvdrun on this machine: contrib/plain.sh ./train --steps 1000
#
# RANKS is the number of ranks, one for each GPU for instance; each line of output begins with its rank. After a failure the job is
# started anew, at most three times; a program that keeps checkpoints goes on from its last one.
exec hvdrun -np "${RANKS:-4}" --tag rank --max-restarts 3 "$@"
