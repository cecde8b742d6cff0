package main

import (
	"context"
	"regexp"
	"time"

	"github.com/spf13/cobra"
)

// completionWait is how long a shell that completes a word waits for a fleet.
const completionWait = 2 * time.Second

// completions tells the shell which words may follow: the values of flags that
// take one of a few, and what the fleet has of what a command names.
func (a *app) completions(root *cobra.Command) {
	kinds := []string{"allocator", "process", "device"}
	for name, values := range map[string][]string{"kind": kinds, "cap-kind": kinds, "quota-kind": kinds, "origin": {"measured", "simulated", "imported"}} {
		each(root, func(c *cobra.Command) { completeFlag(c, name, values) })
	}
	each(root, func(c *cobra.Command) {
		if f := c.LocalNonPersistentFlags().Lookup("format"); f != nil {
			completeFlag(c, "format", listed.Split(f.Usage, -1)) // its help is the list
		}
		switch c.CommandPath() {
		case "fleetctl matrix status", "fleetctl matrix cancel":
			c.ValidArgsFunction = a.complete(a.sweepNames, cobra.ShellCompDirectiveNoFileComp)
		case "fleetctl matrix diff": // which takes files as well
			c.ValidArgsFunction = a.complete(a.sweepNames, cobra.ShellCompDirectiveDefault)
		case "fleetctl agents drain":
			c.ValidArgsFunction = a.complete(a.agentNames, cobra.ShellCompDirectiveNoFileComp)
		}
	})
}

// listed is what stands between the words of a list in a flag's help.
var listed = regexp.MustCompile(`, | or `)

// each calls do for a command and all below it.
func each(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		each(sub, do)
	}
}

func completeFlag(c *cobra.Command, name string, values []string) {
	if c.LocalNonPersistentFlags().Lookup(name) == nil {
		return
	}
	if err := c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic("a flag's words are registered once: " + err.Error())
	}
}

// complete makes a shell's question of one for the fleet. Where no fleet answers
// in time nothing is offered: a word that is typed is no place for errors.
func (a *app) complete(ask func(context.Context) ([]string, error), then cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionWait)
		defer cancel()
		names, err := ask(ctx)
		if err != nil {
			return nil, then
		}
		return names, then
	}
}

func (a *app) sweepNames(ctx context.Context) (names []string, err error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	list, err := client.Sweeps(ctx)
	for _, s := range list.Sweeps {
		names = append(names, cobra.CompletionWithDesc(string(s.Matrix.ID), s.State))
	}
	return names, err
}

func (a *app) agentNames(ctx context.Context) (names []string, err error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	list, err := client.Agents(ctx)
	for _, g := range list.Agents {
		names = append(names, cobra.CompletionWithDesc(string(g.ID), string(g.State)))
	}
	return names, err
}
