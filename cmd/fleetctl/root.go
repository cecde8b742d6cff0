package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes; docs/cli.md says what they mean.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitPartial = 3
)

// streams are where a command reads and writes; documents go to out, all else
// to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// codedError is an error that ends the process with a code of its own.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// usagef is wrong usage or input: exit code 2.
func usagef(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...)}
}

// wrongInput marks an error as wrong usage or input.
func wrongInput(err error) error {
	if err == nil {
		return nil
	}
	return &codedError{exitUsage, err}
}

// run executes one command line and returns the exit code. It is the whole
// program, so that tests run what people run.
func run(ctx context.Context, args []string, s streams) int {
	out := &checkedWriter{w: s.out}
	s.out = out
	root := newRoot(s)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		if err = out.failure(); err == nil {
			return exitOK
		}
		err = fmt.Errorf("write the output: %w", err)
	}
	if missing, ok := missingFlags(c, err); ok {
		err = missing
	}
	if text := strings.TrimSpace(err.Error()); text != "" {
		fmt.Fprintln(s.err, "fleetctl: "+text)
	}
	var coded *codedError
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitFailed
}

// app is what all commands share.
type app struct {
	streams
	json    bool
	server  string
	verbose bool
	// ca, tokenFile and insecure are a client's; see access.
	ca, tokenFile string
	insecure      bool
}

func newRoot(s streams) *cobra.Command {
	a := &app{streams: s}
	root := &cobra.Command{
		Use:   "fleetctl",
		Short: "How much GPU memory a workload really needs",
		Long: `fleetctl finds, for each cell of a test matrix, the smallest memory quota under
which the workload really runs, and serves the boundaries and fitted
coefficients to schedulers.

Exit codes: 0 done (an out-of-memory is a result, not a failure), 1 it failed,
2 wrong usage or input, 3 done but some cells failed or a comparison found a
change.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
			return unknownCommand(c, words[0]) // the flag is the misspelt command's, not the group's
		}
		return usagef("%s%s; see %s --help", flagError(err), nearestFlag(c, err), c.CommandPath())
	})
	root.PersistentFlags().BoolVar(&a.json, "json", false, "write exactly one JSON document to stdout")
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log what happens to stderr")
	root.AddCommand(a.devCommand(), a.coordinatorCommand(), a.agentCommand(), a.matrixCommand(), a.coefficientsCommand(), a.registryCommand(),
		a.quotaCommand(), a.traceCommand(), a.programCommand(), a.agentsCommand(), a.doctorCommand(), a.fitCommand(), a.versionCommand(), a.internalCommand(),
		a.tokenCommand(), a.secureCommand(), a.clusterCommand())
	strict(root)
	a.completions(root)
	return root
}

// strict makes wrong arguments of every command exit with code 2, and a group
// without a subcommand name what it has.
func strict(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usagef("%w; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	if c.HasSubCommands() && c.RunE == nil {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		}
	}
	for _, sub := range c.Commands() {
		strict(sub)
	}
}

// serverFlag adds --server to a command that talks to a fleet.
func (a *app) serverFlag(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.server, "server", "", "coordinators' API, URLs with commas (default $OOMFLEET_SERVER, then http://127.0.0.1:7400)")
	c.PersistentFlags().StringVar(&a.tokenFile, "token-file", "", "file with the API token (default $OOMFLEET_TOKEN_FILE; or the token in $OOMFLEET_TOKEN)")
	c.PersistentFlags().StringVar(&a.ca, "ca", "", "PEM file of the authority to trust, for https (default $OOMFLEET_CA)")
	c.PersistentFlags().BoolVar(&a.insecure, "insecure", false, "send the token over plain http beyond this machine")
}

// logger writes to stderr: warnings, or everything with --verbose.
func (a *app) logger() *slog.Logger {
	level := slog.LevelWarn
	if a.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
}
