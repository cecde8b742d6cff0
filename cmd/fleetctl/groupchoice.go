package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/proto"
)

// groupChoice is what flags say of the group that is meant.
type groupChoice struct {
	chunk             int
	chunkGiven        bool
	env, params       []string
	workload, gpu     string
	driver, cuda      string
	torch, kind, from string
}

func (g *groupChoice) add(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&g.chunk, "chunk-size", 0, "the group with this trunk chunk size, 0 for none")
	f.StringArrayVar(&g.env, "env", nil, "KEY=VALUE of the group's environment, may be repeated; none for the empty one")
	f.StringArrayVar(&g.params, "param", nil, "KEY=VALUE of the group's workload, like stem=bfloat16; may be repeated")
	f.StringVar(&g.workload, "workload", "", "the group of this workload")
	f.StringVar(&g.gpu, "gpu", "", "the group of this GPU model")
	f.StringVar(&g.driver, "driver", "", "the group of this driver")
	f.StringVar(&g.cuda, "cuda", "", "the group of this CUDA version")
	f.StringVar(&g.torch, "torch", "", "the group of this PyTorch version")
	f.StringVar(&g.kind, "quota-kind", "", "the group of this quota kind")
	f.StringVar(&g.from, "origin", "", "the group of this origin")
}

// pick returns the coefficients of the one group that the flags leave.
func (g *groupChoice) pick(all []proto.Coefficients) ([]proto.Coefficients, error) {
	env, params := map[string]string{}, map[string]string{}
	if !slices.Equal(g.env, []string{"none"}) {
		if err := pairs("--env", g.env, env); err != nil {
			return nil, err
		}
	}
	if err := pairs("--param", g.params, params); err != nil {
		return nil, err
	}
	fits := func(c proto.Coefficients) bool {
		like := func(wanted, have string) bool { return wanted == "" || wanted == have }
		for name, value := range params {
			if have, ok := c.Group.Workload.Params[name]; !ok || have != value {
				return false
			}
		}
		return like(g.workload, c.Group.Workload.Name) && like(g.gpu, c.Group.GPU) && like(g.driver, c.Group.Driver) && like(g.cuda, c.Group.CUDA) && like(g.torch, c.Group.Torch) &&
			like(g.kind, string(c.QuotaKind)) && like(g.from, string(c.Origin)) &&
			(!g.chunkGiven || g.chunk == c.Group.ChunkSize) && (len(g.env) == 0 || maps.Equal(env, c.Group.Env))
	}
	groups, every := map[string][]proto.Coefficients{}, map[string][]proto.Coefficients{}
	for _, c := range all {
		key := strings.Join(choiceFlags(c), " ")
		every[key] = append(every[key], c)
		if fits(c) {
			groups[key] = append(groups[key], c)
		}
	}
	switch len(groups) {
	case 0:
		return nil, errors.New("no group is as the flags say; the document has" + listGroups(every))
	case 1:
		for _, group := range groups {
			return group, nil
		}
	}
	return nil, fmt.Errorf("%d groups are as the flags say; choose one with%s", len(groups), listGroups(groups))
}

// listGroups shows the flags by which groups differ, one group a line.
func listGroups(groups map[string][]proto.Coefficients) string {
	common := map[string]int{}
	for _, group := range groups {
		for _, flag := range choiceFlags(group[0]) {
			common[flag]++
		}
	}
	var lines []string
	for _, group := range groups {
		flags := slices.DeleteFunc(choiceFlags(group[0]), func(flag string) bool { return len(groups) > 1 && common[flag] == len(groups) })
		lines = append(lines, "\n  "+strings.Join(flags, " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func pairs(flag string, texts []string, into map[string]string) error {
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return fmt.Errorf("%s takes KEY=VALUE, not %q", flag, text)
		}
		if old, twice := into[name]; twice && old != value {
			return fmt.Errorf("%s names %s twice with different values", flag, name)
		}
		into[name] = value
	}
	return nil
}

// choiceFlags are the flags that choose a group.
func choiceFlags(c proto.Coefficients) []string {
	g := c.Group
	var out []string
	add := func(flag, value string) {
		if value != "" {
			out = append(out, flag+" "+quoted(value))
		}
	}
	add("--workload", g.Workload.Name)
	for _, name := range slices.Sorted(maps.Keys(g.Workload.Params)) {
		add("--param", name+"="+g.Workload.Params[name])
	}
	add("--gpu", g.GPU)
	add("--driver", g.Driver)
	add("--cuda", g.CUDA)
	add("--torch", g.Torch)
	add("--chunk-size", fmt.Sprint(g.ChunkSize))
	env := []string{"--env none"}
	if len(g.Env) > 0 {
		env = env[:0]
		for _, name := range slices.Sorted(maps.Keys(g.Env)) {
			env = append(env, "--env "+quoted(name+"="+g.Env[name]))
		}
	}
	out = append(out, strings.Join(env, " "))
	add("--quota-kind", string(c.QuotaKind))
	add("--origin", string(c.Origin))
	return out
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if strings.ContainsAny(word, " \t\"'\\$&|;<>()*?[]#~`!") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
