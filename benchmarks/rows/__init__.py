"""One module per kind of work: what is timed, against which baseline, and the bar it has to reach."""
