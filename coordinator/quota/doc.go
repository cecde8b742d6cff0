// Package quota owns the answer to "how much memory does this run need": it
// picks the best evidence that a view of the registry holds, says which it was,
// and how far it can be trusted. It is pure: what it must read beside the view
// (stored programs and recordings) it asks a Library for, and the time is given.
// It refuses to mix origins, to guess between stacks, to extrapolate unless told
// to, and to call a quota known that is not.
//
// The evidence, best first:
//
//  1. a boundary of exactly this cell that real probes hold: certified, adaptive,
//     or bisected (which sees one edge, so bands are not known);
//  2. a replay: the cell's own prediction, a recording of the same length and batch
//     under the asked settings, or the family's allocation program; without any, a
//     boundary of the same cell under another kind of quota, translated with the
//     measured bytes outside the allocator; or the boundary of a longer run as an
//     upper bound, unless the fit bounds it closer;
//  3. the upper bound of the fitted coefficients at the asked risk.
//
// Start reading at Question, then Adviser.Recommend, then ladder.go; search.go and
// replicas.go ask the same ladder backwards.
package quota
