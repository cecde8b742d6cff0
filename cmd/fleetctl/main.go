// Command fleetctl is all of OOMFleet in one binary: the coordinator and the
// agent as services, a whole fleet on one machine for trying out, and the
// commands for operators, schedulers and the people whose jobs run out of
// memory.
//
// Exit codes: 0 done (an out-of-memory is a result), 1 it failed, 2 wrong usage
// or input, 3 done but some cells failed or a comparison found a change.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
