package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// ImportReply says what an import came to.
type ImportReply struct {
	Groups []ImportedGroup `json:"groups"`
	// Index is the raft index at which all of it holds.
	Index uint64 `json:"index"`
}

// ImportedGroup is one set of coefficients that was imported.
type ImportedGroup struct {
	Group     proto.Group     `json:"group"`
	QuotaKind proto.QuotaKind `json:"quota_kind"`
	Targets   []string        `json:"targets"`
	// Revision numbers the group's sets; Changed is false when the newest one
	// was the same already.
	Revision int  `json:"revision"`
	Changed  bool `json:"changed"`
}

// Import commits coefficients that were made elsewhere, one set for each of
// their groups. They are of origin imported, and so never meet those of this
// fleet. It fails with a RefusedError, before anything was written, when one of
// them cannot be used, and as Registry.Propose does; only the leader can do it.
func (c *Coordinator) Import(ctx context.Context, models []proto.Coefficients) (ImportReply, error) {
	sets := make(map[registry.GroupKey][]proto.Coefficients)
	for i, m := range models {
		if why := refuseImport(m); why != "" {
			return ImportReply{}, &RefusedError{Why: fmt.Sprintf("coefficients %d of %d: %s", i+1, len(models), why)}
		}
		key := registry.KeyOf(m)
		if slices.ContainsFunc(sets[key], func(o proto.Coefficients) bool { return o.Target == m.Target }) {
			return ImportReply{}, &RefusedError{Why: fmt.Sprintf("coefficients %d of %d: their group has the target %s twice", i+1, len(models), m.Target)}
		}
		sets[key] = append(sets[key], m)
	}
	if len(sets) == 0 {
		return ImportReply{}, &RefusedError{Why: "there are no coefficients to import"}
	}
	var out ImportReply
	for _, key := range slices.SortedFunc(maps.Keys(sets), registry.GroupKey.Compare) {
		reply, err := c.propose(ctx, registry.Command{SetCoefficients: &registry.SetCoefficients{Key: key, Models: sets[key], Evidence: []proto.TaskID{}}})
		if err != nil {
			return ImportReply{}, fmt.Errorf("import coefficients: %w", err)
		}
		if reply.Refused != "" {
			return ImportReply{}, &RefusedError{Why: reply.Refused}
		}
		group := ImportedGroup{Group: sets[key][0].Group, QuotaKind: key.QuotaKind, Changed: reply.Accepted, Targets: []string{}}
		for _, m := range sets[key] {
			group.Targets = append(group.Targets, m.Target)
		}
		group.Revision = revisionAt(c.registry.View(), key, reply.Index)
		out.Groups, out.Index = append(out.Groups, group), reply.Index
	}
	c.log.Info("coefficients imported", "groups", len(out.Groups), "index", out.Index)
	return out, nil
}

// revisionAt is the revision of a group's set as it stood at an index.
func revisionAt(v registry.View, key registry.GroupKey, index uint64) int {
	revision := 0
	for _, set := range append(slices.Clip(v.History[key]), v.Coefficients[key]) {
		if set != nil && set.Index <= index {
			revision = set.Revision
		}
	}
	return revision
}

// controls names the first part of a group that holds a control character, which
// a shell or a manifest would take for something else; empty for none.
func controls(g proto.Group) string {
	at := func(text string) bool {
		return strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
	}
	for _, word := range [][2]string{{"workload", g.Workload.Name}, {"gpu", g.GPU}, {"driver", g.Driver}, {"cuda", g.CUDA}, {"torch", g.Torch}} {
		if at(word[1]) {
			return word[0]
		}
	}
	for i, set := range []map[string]string{g.Workload.Params, g.Env} {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if at(name) || at(set[name]) {
				return []string{"params", "env"}[i]
			}
		}
	}
	return ""
}

// refuseImport says why coefficients could not be asked afterwards.
func refuseImport(c proto.Coefficients) string {
	targets := []string{string(fit.Allocated), string(fit.Reserved), string(fit.Process)}
	if _, err := proto.ParseQuotaKind(string(c.QuotaKind)); err != nil {
		return err.Error()
	}
	switch {
	case c.Origin != proto.OriginImported:
		return fmt.Sprintf("their origin is %.80q, and what comes from elsewhere is imported", c.Origin)
	case c.Group.Workload.Name == "":
		return "they name no workload"
	case controls(c.Group) != "":
		return fmt.Sprintf("their group has a control character in %s, and names are of one line", controls(c.Group))
	case !slices.Contains(targets, c.Target):
		return fmt.Sprintf("target %.80q is not one of allocated, reserved, process", c.Target)
	case len(c.Terms) == 0:
		return "they have no terms"
	case c.Domain.SeqLen[0] < 1 || c.Domain.SeqLen[1] < c.Domain.SeqLen[0] || c.Domain.Batch[0] < 1 || c.Domain.Batch[1] < c.Domain.Batch[0]:
		return "their domain is empty"
	case len(c.Model) == 0 || string(c.Model) == "null":
		return "they have no model, without which nothing can be predicted: import what fit runs or coefficients export --format json wrote"
	}
	if _, err := quota.ModelOf(c); err != nil {
		return "they " + err.Error()
	}
	return ""
}
