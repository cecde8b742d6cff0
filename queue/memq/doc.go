// Package memq owns a queue that lives in one process's memory, for tests and
// for simulations with a clock of their own. It keeps the promises of package
// queue as natsq does, those that help nobody included (a late ack is taken),
// and refuses to outlive its process.
//
// Start reading at New, then lane.go, which is the whole mechanism.
package memq
