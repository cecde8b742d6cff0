package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/agent/sim"
)

// simRunnerCommand is the simulated GPU: a runner process of an agent.
func (a *app) simRunnerCommand() *cobra.Command {
	return &cobra.Command{Use: "simrunner", DisableFlagParsing: true, RunE: func(cmd *cobra.Command, args []string) error {
		cfg, err := sim.ParseFlags(args)
		if err != nil {
			return wrongInput(err)
		}
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program's own file: %w", err)
		}
		server := sim.Server{Config: cfg, Run: []string{self, "internal", "simrun"}}
		return server.Serve(cmd.Context(), a.in, os.NewFile(3, "events"))
	}}
}

// simRunCommand is one run of the simulated GPU, a process of its own.
func (a *app) simRunCommand() *cobra.Command {
	return &cobra.Command{Use: "simrun", DisableFlagParsing: true, RunE: func(_ *cobra.Command, args []string) error {
		if code := sim.Run(args, a.in); code != 0 {
			return &codedError{code, errors.New("")}
		}
		return nil
	}}
}
