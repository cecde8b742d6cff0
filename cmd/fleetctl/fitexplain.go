package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// account is one fitted run's peak taken apart: parts and remainder add up to
// what was measured, to the byte.
type account struct {
	Group  proto.Group `json:"group"`
	Target string      `json:"target"`
	fit.Account
}

// accountsOf takes apart every fitted run of a table, by group and target.
func accountsOf(all []proto.Coefficients, table runTable) ([]account, error) {
	var out []account
	for _, c := range all {
		var m fit.Model
		if err := json.Unmarshal(c.Model, &m); err != nil {
			return nil, fmt.Errorf("read the model of %s: %w", c.Target, err)
		}
		for _, r := range table.rows {
			if r.leftOut != "" || groupKey(r.group) != groupKey(c.Group) {
				continue
			}
			if a, ok := m.Account(r.point); ok {
				out = append(out, account{c.Group, c.Target, a})
			}
		}
	}
	return out, nil
}

// writeAccounts shows a table for each group and target, in whole bytes.
func writeAccounts(w io.Writer, all []account) error {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Target == all[0].Target && groupKey(all[n].Group) == groupKey(all[0].Group) {
			n++
		}
		fmt.Fprintf(w, "%s, %s: bytes, to the last one\n", groupLabel(all[0].Group), all[0].Target)
		used := usedTerms(all[:n])
		header := []string{"  LENGTH", "BATCH", "MEASURED"}
		sign := "= "
		for _, name := range append(used, "REMAINDER") {
			header = append(header, sign+name)
			sign = "+ "
		}
		t := newTable(w, header...)
		for _, a := range all[:n] {
			row := []string{fmt.Sprintf("  %d", a.SeqLen), fmt.Sprint(a.Batch), fmt.Sprint(a.Measured)}
			for _, name := range used {
				row = append(row, fmt.Sprint(a.part(name)))
			}
			t.row(append(row, fmt.Sprint(a.Remainder))...)
		}
		if err := t.flush(); err != nil {
			return err
		}
		if all = all[n:]; len(all) > 0 {
			fmt.Fprintln(w)
		}
	}
	return nil
}

// part is what a term comes to; 0 for one that the model has not.
func (a account) part(name string) int64 {
	for _, p := range a.Parts {
		if p.Name == name {
			return p.Bytes
		}
	}
	return 0
}

// usedTerms are the terms that come to something in any of the runs.
func usedTerms(all []account) (names []string) {
	for _, p := range all[0].Parts {
		for _, a := range all {
			if a.part(p.Name) != 0 {
				names = append(names, p.Name)
				break
			}
		}
	}
	return names
}
