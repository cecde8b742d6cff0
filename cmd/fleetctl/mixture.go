package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// mixture sorts the files of one `program build` by what they are recordings of.
type mixture struct{ kinds []kindOfFiles }

type kindOfFiles struct {
	meta  trace.Meta
	files []string
}

func (m *mixture) add(file string, meta trace.Meta) {
	for i := range m.kinds {
		k := &m.kinds[i]
		if k.meta.Cell.Workload.Equal(meta.Cell.Workload) && k.meta.Stack == meta.Stack && k.meta.Origin == meta.Origin {
			k.files = append(k.files, file)
			return
		}
	}
	m.kinds = append(m.kinds, kindOfFiles{meta, []string{file}})
}

// check refuses recordings of more than one workload, stack or origin, and says
// which are of which.
func (m *mixture) check() error {
	if len(m.kinds) < 2 {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "the recordings are of more than one workload, stack or origin, and a program is built from one: build %d, from", len(m.kinds))
	for _, k := range m.kinds {
		fmt.Fprintf(&text, "\n  %s\n    (%s, driver %s, torch %s, %s)", strings.Join(k.files, " "), k.meta.Cell.Workload, k.meta.Stack.Driver, k.meta.Stack.Torch, k.meta.Origin)
	}
	return errors.New(text.String())
}

// parts says which of the recordings make a program without the others. Empty
// where that tells nothing new.
func parts(paths []string, recordings []allocator.Recording) string {
	groups := alike(recordings)
	if len(groups) < 2 {
		return ""
	}
	var good, bad strings.Builder
	for _, group := range groups {
		var names []string
		var some []allocator.Recording
		for _, i := range group {
			names, some = append(names, filepath.Base(paths[i])), append(some, recordings[i])
		}
		if _, err := allocator.BuildFamily(some); err != nil {
			fmt.Fprintf(&bad, "\n  %s\n    %v", strings.Join(names, " "), err)
		} else {
			fmt.Fprintf(&good, "\n  %s", strings.Join(names, " "))
		}
	}
	text := ""
	if bad.Len() > 0 {
		text = "\nthese recordings make no program, leave them out or record what they lack:" + bad.String()
	}
	if good.Len() > 0 {
		text += "\nthese do, build from them:" + good.String()
	}
	return text
}

// alike groups recordings that may come from one program: of one chunk size, all
// of one sequence at once or all of more, and not known to do different things.
func alike(recordings []allocator.Recording) [][]int {
	var groups [][]int
	for i, r := range recordings {
		at := slices.IndexFunc(groups, func(group []int) bool {
			first := recordings[group[0]]
			if first.Chunk != r.Chunk || (first.Batch > 1) != (r.Batch > 1) {
				return false
			}
			_, err := allocator.BuildFamily([]allocator.Recording{first, r})
			return !errors.Is(err, allocator.ErrSequencesDiffer)
		})
		if at < 0 {
			groups = append(groups, []int{i})
		} else {
			groups[at] = append(groups[at], i)
		}
	}
	return groups
}
