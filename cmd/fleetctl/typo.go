package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// unknownCommand refuses a word where a command is wanted, and names those that
// may have been meant.
func unknownCommand(group *cobra.Command, word string) error {
	if group.SuggestionsMinimumDistance == 0 {
		group.SuggestionsMinimumDistance = 2 // cobra's own default, which only its own check sets
	}
	hint := ""
	if near := group.SuggestionsFor(word); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q for %q%s; see %s --help", word, group.CommandPath(), hint, group.CommandPath())
}

var flagName = regexp.MustCompile(`--([a-z0-9-]+)`)

// nearestFlag names the flag that an unknown one may have been meant for.
func nearestFlag(c *cobra.Command, err error) string {
	var unknown interface{ GetSpecifiedName() string }
	if !errors.As(err, &unknown) {
		return ""
	}
	var known []string
	for line := range strings.Lines(c.Flags().FlagUsages()) {
		if name := flagName.FindStringSubmatch(line); name != nil {
			known = append(known, name[1])
		}
	}
	if near, ok := matrix.Nearest(unknown.GetSpecifiedName(), known); ok {
		return "; did you mean --" + near + "?"
	}
	return ""
}

// noSuchSweep names the sweep that a misspelt id or name may have been meant for.
func noSuchSweep(name string, sweeps []registry.Summary) error {
	var known []string
	for _, s := range sweeps {
		known = append(known, string(s.Matrix.ID), s.Matrix.Name)
	}
	hint := "matrix list shows them"
	if near, ok := matrix.Nearest(name, known); ok {
		hint = "did you mean " + near + "?"
	}
	return usagef("%q is neither the id nor the name of a sweep; %s", name, hint)
}
