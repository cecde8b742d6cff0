// Package child owns the processes in which runs happen: it starts a runner
// under a guard, speaks the runner protocol with it, caps and times a run,
// reads the meters beside it, and hands back evidence. It refuses to judge that
// evidence (but that of its own check), to know what a task is for, and to keep a process alive that the
// agent no longer watches.
//
// Processes:
//
//	agent ── guard ── runner ── the run's own process ── whatever it starts
//
// The guard (Guard, a hidden subcommand) is a sub-reaper: every descendant that
// loses its parent becomes the guard's child, even one that called setsid and
// ignores SIGTERM. The agent holds the only write end of a pipe, the lifeline.
// When the agent dies, by kill -9 too, the kernel closes it and the guard kills
// every descendant before it ends. When the guard itself is killed, its token in
// the environment of every descendant lets the agent find and end them.
//
// Start reading at Prober, then Guard.
package child
