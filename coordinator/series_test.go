package coordinator

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSeriesDoNotGrow: a coordinator has as many series after fifty cells as
// after two, and none of their labels is an id of something that there are many of.
func TestSeriesDoNotGrow(t *testing.T) {
	f := newFleet(t)
	c, stop := f.start()
	endAgents := f.agents(2, f.honest)
	series := func() (all []string) {
		families, err := f.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "oomfleet_cells" { // one for each of the nine states that a cell is in
				if n := len(family.GetMetric()); n > 9 {
					t.Errorf("%d series of cells", n)
				}
				continue
			}
			for _, m := range family.GetMetric() {
				name := family.GetName()
				for _, label := range m.GetLabel() {
					name += " " + label.GetName() + "=" + label.GetValue()
					if slices.Contains([]string{"cell", "sweep", "task", "trace", "seq_len", "fence", "digest", "workload", "env"}, label.GetName()) {
						t.Errorf("%s has the label %s", family.GetName(), label.GetName())
					}
				}
				all = append(all, name)
			}
		}
		return all
	}
	f.settled(f.submit(c, "[100, 200]"))
	before := series()
	if len(before) < 20 || !slices.Contains(before, "oomfleet_fits_total result=committed") {
		t.Errorf("these are not the coordinator's series: %v", before)
	}
	var lengths []string
	for n := range 48 {
		lengths = append(lengths, strconv.Itoa(202+2*n))
	}
	if r := f.settled(f.submit(c, "["+strings.Join(lengths, ", ")+"]")); r.Counts.Total != 48 {
		t.Errorf("%+v", r.Counts)
	}
	if after := series(); !slices.Equal(before, after) {
		t.Errorf("%d series have become %d: %v", len(before), len(after), after)
	}
	endAgents()
	stop()
}
