package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	Saves   int64  `json:"saves_bytes"`
	Warning string `json:"warning,omitempty"`
}

func (a *app) traceWhatIfCommand() *cobra.Command {
	var extra []string
	c := &cobra.Command{Use: "what-if TRACE", Short: "Compare allocator settings for a recorded run, best first", Args: cobra.ExactArgs(1),
		Example: "  fleetctl trace what-if L384_B1.parquet --setting garbage_collection_threshold:0.8",
		RunE: func(_ *cobra.Command, args []string) error {
			rows, err := whatIf(args[0], append(candidates(), extra...))
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.out, map[string]any{"settings": rows})
			}
			t := newTable(a.out, "SETTING", "BOUNDARY", "SAVES", "NO-RETRY", "FAIL BANDS", "UNCAPPED RESERVED", "WARNING")
			for _, r := range rows {
				saves := mib(proto.Bytes(r.Saves))
				if r.Saves < 0 {
					saves = "-" + mib(proto.Bytes(-r.Saves))
				}
				t.row(cmp.Or(r.Setting, "(default)"), mib(r.Boundary.Boundary), saves, mib(r.NoRetry), bands(r.Boundary), mib(proto.Bytes(r.PeakReserved)), r.Warning)
			}
			return t.flush()
		}}
	c.Flags().StringArrayVar(&extra, "setting", nil, "another value of PYTORCH_CUDA_ALLOC_CONF to compare; may be repeated")
	return c
}

// whatIf maps a trace under each setting, lowest boundary first.
func whatIf(path string, settings []string) ([]whatIfRow, error) {
	own, err := openReplay(path, replayFlags{capKind: string(proto.QuotaAllocator)})
	if err != nil {
		return nil, err
	}
	if _, err := own.checked(); err != nil {
		return nil, err
	}
	base, _, err := own.boundary()
	if err != nil {
		return nil, err
	}
	var rows []whatIfRow
	for i, conf := range settings {
		if slices.Contains(settings[:i], conf) {
			continue
		}
		r := *own
		if r.wanted, err = allocator.ParseSettings(conf); err != nil {
			return nil, wrongInput(err)
		}
		b, uncapped, err := r.boundary()
		if err != nil {
			return nil, fmt.Errorf("setting %q: %w", conf, err)
		}
		row := whatIfRow{Setting: conf, boundaryDocument: b, PeakReserved: uncapped.PeakReserved, Saves: int64(base.Boundary.Boundary - b.Boundary.Boundary)}
		row.Warning = warning(conf, r.wanted, uncapped.PeakReserved, base)
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(x, y whatIfRow) int { return cmp.Compare(x.Boundary.Boundary, y.Boundary.Boundary) })
	return rows, nil
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
