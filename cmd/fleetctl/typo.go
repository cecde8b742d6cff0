package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
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
	if near, ok := matrix.Nearest(unknown.GetSpecifiedName(), known); ok && near != unknown.GetSpecifiedName() {
		return "; did you mean --" + near + "?"
	}
	return ""
}

var (
	badNumber = regexp.MustCompile(`(?s)^invalid argument (".*") for "(?:-\w, )?(--[a-z0-9-]+)" flag: strconv\.\w+: parsing .*: (.*)$`)
	flagWord  = regexp.MustCompile(`"([a-z0-9-]+)"`)
)

// flagError is what is wrong with a flag, without the name of the function that
// found it.
func flagError(err error) string {
	m := badNumber.FindStringSubmatch(err.Error())
	switch {
	case m == nil:
		return err.Error()
	case m[3] == "value out of range":
		return m[2] + " " + m[1] + " is out of range"
	}
	return m[2] + " " + m[1] + " is not a number as it is wanted here, in plain digits"
}

// missingFlags is cobra's error, which has no type, for flags that a command
// cannot do without.
func missingFlags(c *cobra.Command, err error) (error, bool) {
	names, ok := strings.CutPrefix(err.Error(), "required flag(s) ")
	if !ok {
		return err, false
	}
	var flags []string
	for _, m := range flagWord.FindAllStringSubmatch(names, -1) {
		flags = append(flags, "--"+m[1])
	}
	return usagef("%s wants %s; see %s --help", c.CommandPath(), strings.Join(flags, " and "), c.CommandPath()), true
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

// notCancelled explains why. A name stands for the newest sweep wherever one reads;
// what is cancelled is named by its id, and so the ids of a name are told.
func (a *app) notCancelled(ctx context.Context, client *api.Client, name string, err error) error {
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != api.CodeNotFound {
		return a.explain(err)
	}
	list, listErr := client.Sweeps(ctx)
	if listErr != nil {
		return a.explain(err)
	}
	var ids []string
	for _, s := range list.Sweeps {
		if s.Matrix.Name == name {
			ids = append(ids, fmt.Sprintf("  %s (%s, %s)", s.Matrix.ID, s.Origin, s.State))
		}
	}
	if len(ids) == 0 {
		return noSuchSweep(name, list.Sweeps)
	}
	return usagef("%q is the name of a matrix; name the sweep to cancel by its id:\n%s", name, strings.Join(ids, "\n"))
}
