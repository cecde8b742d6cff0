package matrix

// maxText bounds what parameters and variables come to over all cells, in bytes.
// Each cell carries its own, in the coordinators' memory, log and snapshots; a
// file of some KiB could else ask for gigabytes of them.
const maxText = 64 << 20

// weigh reports a sweep whose cells carry more text than coordinators keep.
func (r *reader) weigh(spec *Spec, cells int) {
	each := len(spec.Workload.Name)
	for name, value := range spec.Workload.Params {
		each += len(name) + len(value)
	}
	variables := 0
	for _, sel := range append([]selection{spec.axes}, spec.include...) {
		for _, env := range sel.env {
			variables = max(variables, len(env.value.key))
		}
	}
	if total := (each + variables) * cells; total > maxText {
		r.fail(spec.axes.at, "the parameters and variables of %d cells come to %d MiB, with %d KiB for each; at most %d MiB are kept: put long ones into a file of the agents, or split the sweep",
			cells, total>>20, (each+variables+1023)>>10, maxText>>20)
	}
}
