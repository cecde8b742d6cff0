package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/proto"
)

// diffSide is one side of a comparison; client is nil for a file.
type diffSide struct {
	diff.Side
	client *api.Client
}

// diffSides reads what the arguments name.
func (a *app) diffSides(ctx context.Context, args []string, f diffFlags) (sides [2]diffSide, err error) {
	switch {
	case len(args) == 1 && len(f.drivers) < 2 && len(f.torches) < 2:
		return sides, usagef("one sweep is compared with itself under two drivers: --driver X --driver Y; or name two sweeps")
	case len(args) == 2 && args[0] == "-" && args[1] == "-":
		return sides, usagef("only one side can be stdin")
	}
	for i, name := range args {
		if sides[i], err = a.diffSide(ctx, name); err != nil {
			return sides, err
		}
	}
	if len(args) == 1 {
		sides[1] = sides[0]
	}
	for i := range sides {
		if len(f.drivers) > 0 {
			sides[i].Driver = f.drivers[min(i, len(f.drivers)-1)]
		}
		if len(f.torches) > 0 {
			sides[i].Torch = f.torches[i]
		}
	}
	return sides, nil
}

// diffSide reads a file, or asks the fleet for a sweep.
func (a *app) diffSide(ctx context.Context, name string) (diffSide, error) {
	side := diffSide{Side: diff.Side{Name: name}}
	if name == "-" || looksLikeFile(name) {
		report, err := a.readReport(name)
		side.Report = report
		return side, err
	}
	client, err := a.client()
	if err != nil {
		return side, err
	}
	side.client = client
	side.Report, err = a.sweepNamed(ctx, client, name)
	side.Name = cmp.Or(string(side.Report.Matrix.ID), name)
	return side, err
}

// looksLikeFile tells files from ids and names, which have neither dots nor
// slashes; a file of such a name wins.
func looksLikeFile(name string) bool {
	if strings.ContainsAny(name, "./") {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// maxReport is more than the document of the largest sweep has.
const maxReport = 512 << 20

// readReport reads the status document of a sweep from a file.
func (a *app) readReport(path string) (r proto.Report, err error) {
	in, path, err := a.input(path, "the sweep's document")
	if err != nil {
		return r, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxReport))
	if err != nil {
		return r, wrongInput(fmt.Errorf("read the sweep's document: %w", err))
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&r); err != nil {
		return r, usagef("%s is no document of a sweep: %w; give what dev --submit or matrix status print with --json", path, err)
	}
	if len(r.Cells) == 0 {
		return r, usagef("%s holds no cells; give what dev --submit or matrix status print with --json", path)
	}
	for _, c := range r.Cells {
		if c.SeqLen < 1 || c.Batch < 1 || c.Boundary.Boundary < 0 || c.Driver == "" {
			return r, usagef("%s: cell %q is no cell of a sweep: it needs seq_len and batch of 1 or more, a driver, and no amount below 0", path, c.ID)
		}
		if _, err := proto.ParseOrigin(string(c.Origin)); err != nil {
			return r, usagef("%s: cell %q: %w", path, c.ID, err)
		}
		if _, err := proto.ParseQuotaKind(string(c.QuotaKind)); err != nil {
			return r, usagef("%s: cell %q: %w", path, c.ID, err)
		}
	}
	return r, nil
}
