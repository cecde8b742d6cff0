package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrOldMember is returned by Gate for a command that a coordinator of the
// cluster could not apply. Nothing was proposed; the same goes once it is upgraded.
var ErrOldMember = errors.New("a coordinator of the cluster is of an older build")

// Needs is the lowest command version in which c can be written. Everything up
// to the first release is version 1. Whoever adds an order, a field that changes
// what Apply does, or a word to a set that Apply looks at (outcomes, cell states)
// raises CommandVersion after a release, and says here what needs it.
func (c Command) Needs() int { return 1 }

// Gate is the version under which a command goes into the log of these members:
// the lowest that it can be written in, so that every build which can read it
// does. It fails with ErrOldMember when a member has announced less.
func Gate(c Command, members map[string]Member) (version int, err error) {
	return gate(c.Needs(), members)
}

func gate(needs int, members map[string]Member) (version int, err error) {
	for _, id := range slices.Sorted(maps.Keys(members)) {
		// One that has announced none is of the first build that had members.
		if has := max(members[id].CommandVersion, 1); has < needs {
			return 0, fmt.Errorf("%w: this needs command version %d and %s applies up to %d; upgrade it, or remove it if it is gone for good", ErrOldMember, needs, id, has)
		}
	}
	return needs, nil
}
