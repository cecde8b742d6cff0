// Package outcome owns the judgement: it reads out-of-memory texts of every
// generation, and names the outcome of a run from its evidence. It is a pure
// function of data. It refuses to run anything, to look at a card or a clock,
// and to guess numbers that a text does not hold: what is unknown is nil.
//
// The rules are those of the public reports that people filed: sizes are
// printed with two decimals, so a size read from a text is never exact to the
// byte; an out-of-memory is a result, and only evidence of a refused
// allocation makes one; a run that was disturbed teaches nothing.
//
// Start reading at Read for texts and at Classify for runs.
package outcome
