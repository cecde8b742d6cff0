// Package diff owns the comparison of two sweeps: it pairs their cells, hands
// each group to fit.Compare, and says what came of it cell by cell, term by term
// and for the jobs that run under quotas.
//
// It is pure, so that the coordinator, which compares by itself after a rollout,
// and fleetctl, which compares two documents without a fleet, come to the same
// verdict. It refuses to compare what must not be mixed: numbers of two origins,
// kinds of quota or steps, a sweep that still runs, and a side with more than
// one stack. It judges no number itself where fit can; boundaries of cells that
// were never recorded are compared here, on their grid.
//
// Start reading at Sweeps, then Document.
package diff
