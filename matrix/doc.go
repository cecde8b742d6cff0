// Package matrix owns the matrix file: it turns a YAML text into the canonical
// list of cells that a sweep measures, or into every reason why it cannot, each
// with its line and column.
//
// The same text, the same installed stacks and the same overrides give the same
// cells in the same order on every machine: clients expand a file for fast
// errors, the coordinator expands it again and trusts only its own result.
// Neither the order of keys nor the order of values in the file changes a cell's
// id or its place in the list.
//
// The package refuses to read files, to ask for agents and to guess: values are
// taken from the source text as it is written (580.10 stays 580.10), unknown
// keys are errors, and unset, empty and null are three different things. It
// knows what a setting may look like, not what it does to a run.
//
// Start reading at Expand, then Parse; File is the shape of the document, and
// docs/matrix.md in the repository is the reference for people who write one.
package matrix
