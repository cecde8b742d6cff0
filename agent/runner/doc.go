// Package runner owns the line protocol between an agent and its runner, the
// process that really runs a workload, and holds the Python runner itself
// (runner.py). It refuses to start a process or to judge what an event means:
// package agent/child runs runners, package agent/sim is the simulated one.
//
// An agent writes one Request a line to the runner's stdin and reads one Event
// a line from the runner's file descriptor 3. docs/design.md ("Runner
// protocol") is the binding description; Protocol is its version.
//
// Start reading at Request, then Event.
package runner

import _ "embed"

//go:embed runner.py
var script string

// Script returns the Python runner's source text.
func Script() string { return script }
