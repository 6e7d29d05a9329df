#!/usr/bin/env bash
# Repeats the comparison at equal budgets: for each kind of units a search of the same size, then its
# winner with three seeds. What the storage and the records have is not run again. Options go to every
# command: --jobs 2 for two trials at a time (about six hours in all), --records FOLDER to begin anew.
set -euo pipefail

everywhere=("$@")
units="activation=lp activation=l2 activation=maxout activation=relu"
networks="model=lp model=tanh model=sigmoid model=gru"
small="hidden=200 units=200 output_units=200 filters=2"

# contest EXPERIMENT "OPTIONS OF THE SEARCH" "KINDS" SETTING...
contest() {
  local kind setting fixed
  for kind in $3; do
    fixed=(--scale paper)
    for setting in "${@:4}" "$kind"; do fixed+=(--set "$setting"); done
    lpunits search "$1" $2 "${fixed[@]}" "${everywhere[@]}"
    lpunits run "$1" "${fixed[@]}" --from-search --seeds 3 "${everywhere[@]}"
  done
}

contest modern "--trials 20 --sampler tpe" "$units" epochs=10
contest pentomino "--trials 12 --sampler tpe" "$units" "hidden=(100,)" filters=6 epochs=30
contest fer2013 "--trials 8" "$units" "hidden=(400,)" filters=6 epochs=8
contest covertype "--trials 8" "$units" "hidden=(150,150,150)" filters=4 epochs=6 last_epochs=0
contest jsb "--trials 16 --sampler tpe" "$networks" $small decay=cosine average=0.995 epochs=60
contest nottingham "--trials 8" "$networks" $small batch=8 epochs=15
contest musedata "--trials 8" "$networks" $small batch=8 epochs=8
