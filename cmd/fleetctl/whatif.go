package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// candidates are the settings that `trace what-if` compares, beside the
// recording's own.
func candidates() []string {
	return []string{
		"", "expandable_segments:True", "max_split_size_mb:64", "max_split_size_mb:128", "max_split_size_mb:256", "max_split_size_mb:512",
		"roundup_power2_divisions:4", "roundup_power2_divisions:8", "expandable_segments:True,max_split_size_mb:128",
	}
}

// whatIfRow is one setting's line.
type whatIfRow struct {
	Setting string `json:"setting"`
	boundaryDocument
	PeakReserved int64 `json:"peak_reserved_bytes"`
	// Saves is how much lower the boundary is than the recording's own
	// setting's; negative when it is higher.
	Saves int64 `json:"saves_bytes"`
	// MappedUpTo is the largest quota that was looked at, where that is not the
	// setting's own no-retry quota.
	MappedUpTo int64  `json:"mapped_up_to_bytes,omitempty"`
	Warning    string `json:"warning,omitempty"`
}

func (a *app) traceWhatIfCommand() *cobra.Command {
	var extra []string
	c := &cobra.Command{Use: "what-if TRACE", Short: "Compare allocator settings for a recorded run, best first", Args: cobra.ExactArgs(1),
		Example: "  fleetctl trace what-if L384_B1.parquet --setting garbage_collection_threshold:0.8",
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := whatIf(cmd.Context(), args[0], append(candidates(), extra...))
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.out, map[string]any{"settings": rows})
			}
			t := newTable(a.out, "SETTING", "BOUNDARY", "SAVES", "NO-RETRY", "FAIL BANDS", "RESERVED")
			for _, r := range rows {
				saves := mib(proto.Bytes(r.Saves))
				if r.Saves < 0 {
					saves = "-" + mib(proto.Bytes(-r.Saves))
				}
				t.row(cmp.Or(r.Setting, "(default)"), mib(r.Boundary.Boundary), saves, mib(r.NoRetry), shortBands(r.Boundary), mib(proto.Bytes(r.PeakReserved)))
			}
			if err := t.flush(); err != nil {
				return err
			}
			return writeWarnings(a.out, rows)
		}}
	c.Flags().StringArrayVar(&extra, "setting", nil, "another value of PYTORCH_CUDA_ALLOC_CONF to compare; may be repeated")
	return c
}

// writeWarnings says under the table which settings have which drawback.
func writeWarnings(w io.Writer, rows []whatIfRow) error {
	var order []string
	settings := map[string][]string{}
	for _, r := range rows {
		if r.Warning == "" {
			continue
		}
		if settings[r.Warning] == nil {
			order = append(order, r.Warning)
		}
		settings[r.Warning] = append(settings[r.Warning], r.Setting)
	}
	if len(order) > 0 {
		fmt.Fprintln(w)
	}
	for _, warning := range order {
		if err := writeNote(w, "", "note: "+strings.Join(settings[warning], " and ")+": "+warning); err != nil {
			return err
		}
	}
	return nil
}

// whatIf maps a trace under each setting, lowest boundary first. Settings are
// read before the trace is, so that a wrong one is refused at once.
func whatIf(ctx context.Context, path string, settings []string) ([]whatIfRow, error) {
	var rows []whatIfRow
	var wanted []allocator.Settings
	for i, conf := range settings {
		if slices.Contains(settings[:i], conf) {
			continue
		}
		set, err := allocator.ParseSettings(conf)
		if err == nil && set.Fraction > 0 && set.Fraction < 1 {
			err = errFraction
		}
		if err != nil {
			return nil, wrongInput(err)
		}
		rows, wanted = append(rows, whatIfRow{Setting: conf}), append(wanted, set)
	}
	own, err := openReplay(path, replayFlags{capKind: string(proto.QuotaAllocator)})
	if err != nil {
		return nil, err
	}
	own.stop = endsWith(ctx)
	if _, err := own.checked(); err != nil {
		return nil, err
	}
	base, _, err := own.boundary(ctx)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(rows))
	var group sync.WaitGroup
	turn := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range rows {
		group.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			errs[i] = rows[i].fill(ctx, *own, wanted[i], base)
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(x, y whatIfRow) int { return cmp.Compare(x.Boundary.Boundary, y.Boundary.Boundary) })
	return rows, nil
}

// fill maps the trace under a row's setting.
func (row *whatIfRow) fill(ctx context.Context, r recorded, wanted allocator.Settings, base boundaryDocument) error {
	r.wanted = wanted
	if wanted.Expandable && wanted.MaxSplit > 0 {
		// Reserved memory follows the quota all the way up: thousands of paths
		// that nobody asks for.
		r.ceiling = int64(base.NoRetry)
		row.MappedUpTo = r.ceiling
	}
	b, uncapped, err := r.boundary(ctx)
	if err != nil {
		return fmt.Errorf("setting %q: %w", row.Setting, err)
	}
	row.boundaryDocument, row.PeakReserved, row.Saves = b, uncapped.PeakReserved, int64(base.Boundary.Boundary-b.Boundary.Boundary)
	if int64(b.Boundary.Boundary) > row.MappedUpTo {
		row.MappedUpTo = 0
	}
	row.Warning = warning(row.Setting, wanted, uncapped.PeakReserved, base)
	if row.MappedUpTo > 0 {
		row.Warning += fmt.Sprintf("; mapped up to %s", mib(proto.Bytes(row.MappedUpTo)))
	}
	return nil
}

// warning says what a setting does that its boundary does not show.
func warning(conf string, s allocator.Settings, uncapped int64, base boundaryDocument) string {
	switch {
	case s.Expandable && s.MaxSplit > 0:
		return fmt.Sprintf("these two together make reserved memory run to whatever quota there is (uncapped: %s)", mib(proto.Bytes(uncapped)))
	case s.GCThreshold > 0:
		return "garbage collection acts under a cap only"
	case strings.HasPrefix(conf, "max_split") && uncapped > int64(base.NoRetry):
		return "needs less under a quota, more without one"
	}
	return ""
}
