// Package fit turns measured memory peaks into coefficients: additive, never
// negative terms with intervals, for one group (one workload, card, driver,
// chunk size and environment) and one origin at a time.
//
// It owns the model and its arithmetic. It refuses to do I/O, to read a clock,
// to decide what belongs into a group, and to hide what it could not explain:
// every Model carries its largest residual, the point where that happens, the
// domain in which it was fitted, and notes on whatever did not add up.
//
// # The model
//
// A peak is a sum of parts, and each part is fitted on its own difference, so
// that the wobble of the allocator never bends the activations:
//
//	allocated = weights + workspaces + BL*B*L + BL2*B*L^2 + BL3*B*L^3
//	reserved  = allocated + slack + (slack that grows with B*L and B*L^2)
//	process   = reserved  + context + modules
//
// Weights and context are measured and taken as they are. The slack that grows
// is part of the terms BL and BL2 of the reserved target: a term's value times
// its variable, summed over all terms, is the prediction. There is no cubic
// slack: a free cubic of reserved extrapolates badly. The state after loading
// (reserved with no activations yet) is a point of the slack at length zero.
// Where the smaller peak was not measured, a target is fitted directly, and a
// note says which parts its constant then lumps together.
//
// # The method
//
// Errors count relative to the measured peak. All sets of terms are tried, each
// by non-negative least squares (Lawson and Hanson, Solving Least Squares
// Problems, 1974, chapter 23); leave-one-out error (PRESS) chooses one of them.
// Every set whose leave-one-out error an F test does not tell apart from the
// best stays plausible, and an interval is the hull over all plausible sets: few
// points give few terms and wide intervals. Within a set the intervals are the
// textbook prediction intervals (Student's t), so nothing here is random and
// the order of points never matters.
//
// With chunks the rows of BL2 and BL3 exist a chunk at a time, for every batch the
// same: terms CL (of L) and CL2 (of L^2) hold them where two batches of two lengths
// each tell them from BL and BL2.
//
// A new run differs from the prediction by the model's error and by what one run
// differs from the next, which repeats and metered contexts tell: both are in the
// interval, each once. QuotaFor is the same bound on one side, at a stated risk.
//
// A peak is the maximum over a program, so one sum need not hold everywhere:
// another place may bind for short sequences, or for more than one sequence
// (chunked ESMFold copies a tensor of B*L^3 only from batch 2 on). When the sum
// misses by more than 1 % and holds on one batch, or from some length on, the
// fit keeps to that part, says so, and its domain ends there.
//
// # Comparing
//
// Compare sets two stacks side by side, cell by cell. It fits no curve through a
// side: the same length and batch on both sides cancel the program's shape, and
// the layers that are metered (weights, context, slack, modules) are compared each
// on its own, so that what moved has a name. noise.go says how much runs differ,
// growth.go which terms of the program changed, verdict.go what is said of it.
//
// Start reading at Fit, then Model.Predict; sets.go is the choice of terms. For
// comparisons start at Compare.
package fit
