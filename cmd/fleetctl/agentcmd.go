package main

import "github.com/spf13/cobra"

func (a *app) agentCommand() *cobra.Command     { return &cobra.Command{Use: "agent"} }
func (a *app) simRunnerCommand() *cobra.Command { return &cobra.Command{Use: "simrunner"} }
