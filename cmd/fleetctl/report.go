package main

import (
	"errors"
	"fmt"

	"github.com/oomfleet/oomfleet/proto"
)

// printReport writes a sweep's status: the contract's document, or a table and
// the coefficients. Failed cells make the exit code 3 once the sweep is done.
func (a *app) printReport(r proto.Report) error {
	if err := a.writeReport(r); err != nil {
		return err
	}
	if r.State != "running" && r.Counts.Failed > 0 {
		return &codedError{exitPartial, fmt.Errorf("%d of %d cells failed; the reasons are in the status", r.Counts.Failed, r.Counts.Total)}
	}
	return nil
}

func (a *app) writeReport(r proto.Report) error {
	if a.json {
		return writeJSON(a.out, r)
	}
	c := r.Counts
	fmt.Fprintf(a.out, "%s (%s): %s, %d of %d cells settled, %d failed\n\n", r.Matrix.ID, r.Origin, r.State, c.Settled(), c.Total, c.Failed)
	if text := rolloutText(r); text != "" {
		fmt.Fprintf(a.out, "%s\n\n", text)
	}
	t := newTable(a.out, "LENGTH", "BATCH", "CHUNK", "DRIVER", "ENVIRONMENT", "STATE", "BOUNDARY", "NO-RETRY", "FAIL BANDS", "PEAK RESERVED", "PROBES", "GPU S")
	var reasons []error
	for _, cell := range r.Cells {
		t.row(fmt.Sprint(cell.SeqLen), fmt.Sprint(cell.Batch), fmt.Sprint(cell.ChunkSize), cell.Driver, proto.EnvString(cell.Env), string(cell.State),
			mib(cell.Boundary.Boundary), mib(cell.NoRetry), bands(cell.Boundary), mib(cell.PeakReserved), fmt.Sprint(cell.Probes), fmt.Sprintf("%.1f", cell.GPUSeconds))
		if cell.Reason != "" {
			reasons = append(reasons, fmt.Errorf("L%d B%d c%d %s %s: %s", cell.SeqLen, cell.Batch, cell.ChunkSize, cell.Driver, proto.EnvString(cell.Env), cell.Reason))
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(reasons) > 0 {
		fmt.Fprintf(a.out, "\n%s\n", errors.Join(reasons...))
	}
	if len(r.Coefficients) > 0 {
		fmt.Fprintln(a.out)
		return formulaTable(a.out, r.Coefficients)
	}
	return nil
}
