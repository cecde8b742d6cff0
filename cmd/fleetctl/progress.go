package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// progress shows how far a sweep is: a bar on a terminal or, where it is
// watched, a screen; elsewhere one quiet line whenever the number of settled
// cells has changed.
type progress struct {
	w        io.Writer
	terminal bool
	watch    bool
	bars     *mpb.Progress
	bar      *mpb.Bar
	settled  int
	first    int       // cells that were settled at the first look
	moved    time.Time // when their number changed last
	began    time.Time
	warned   []string                   // to what is no screen, each once
	waits    []wait                     // as the fleet was asked last
	size     func() (columns, rows int) // of the terminal; zero where unknown
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, settled: -1, began: time.Now()}
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
		p.size = func() (columns, rows int) {
			if s, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
				return int(s.Col), int(s.Row)
			}
			return 0, 0
		}
	}
	return p
}

func (p *progress) show(r proto.Report) {
	settled := r.Counts.Settled()
	if p.settled < 0 {
		p.first = settled
	}
	if settled != p.settled {
		p.moved = time.Now()
	}
	if p.watch && p.terminal {
		p.settled = settled
		p.screen(r)
		return
	}
	if settled == p.settled {
		return
	}
	p.settled = settled
	if !p.terminal {
		line := fmt.Sprintf("%s: %d of %d cells settled, %d failed (%.0f s)", r.Matrix.ID, settled, r.Counts.Total, r.Counts.Failed, time.Since(p.began).Seconds())
		if pace := p.pace(r); pace != "" {
			line += "; " + pace
		}
		fmt.Fprintln(p.w, line)
		return
	}
	if p.bar == nil {
		p.bars = mpb.New(mpb.WithOutput(p.w), mpb.WithWidth(48))
		p.bar = p.bars.AddBar(int64(r.Counts.Total), mpb.PrependDecorators(decor.Name("cells settled "), decor.CountersNoUnit("%d/%d")),
			mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO)))
	}
	p.bar.SetCurrent(int64(settled))
}

// pace is that of the time since the first look, empty once all is settled.
func (p *progress) pace(r proto.Report) string {
	settled := r.Counts.Settled()
	return paceText(settled-p.first, r.Counts.Total-settled, time.Since(p.began))
}

// mostOnScreen is how many of the cells in work a screen lists.
const mostOnScreen = 15

// stillLimit is after how long a screen on which nothing changes says so.
const stillLimit = 2 * time.Minute

// screen draws the head of the status anew, and the cells that are in work.
func (p *progress) screen(r proto.Report) {
	columns, rows := 0, 0
	if p.size != nil {
		columns, rows = p.size()
	}
	pace := p.pace(r)
	if len(p.waits) > 0 {
		pace = "" // it promises an end that is not in sight
	}
	var lines []string
	head := reportHead(r, pace)
	for _, w := range p.waits {
		head = append(head, wrapped(w.String()+w.remedy()))
	}
	if still := time.Since(p.moved); still > stillLimit && len(p.waits) == 0 {
		head = append(head, fmt.Sprintf("no cell has settled for %s; fleetctl agents list shows what runs", roughly(still)))
	}
	for _, line := range head {
		lines = append(lines, fitted(line, columns)...)
	}
	open, room := inWork(r), mostOnScreen
	if rows > 0 {
		room = max(0, min(room, rows-2-len(lines)))
	}
	if len(open) > room {
		open = append(open[:room], fmt.Sprintf("  and %d more in work", len(open)-room))
	}
	for _, line := range open {
		if columns > 0 && len([]rune(line)) > columns { // a line each, whatever it takes
			line = " " + strings.Join(strings.Fields(line), " ")
			line = string([]rune(line)[:min(len([]rune(line)), columns)])
		}
		lines = append(lines, line)
	}
	if rows > 0 && len(lines) >= rows { // what scrolls away is drawn twice
		lines = lines[:rows-1]
	}
	// Home, then each line with what stood behind it cleared, then all below: a
	// screen that is wiped first would flicker.
	fmt.Fprintf(p.w, "\x1b[H%s\x1b[K\n\x1b[J", strings.Join(lines, "\x1b[K\n"))
}

// inWork lists the cells that are queued or run.
func inWork(r proto.Report) (open []string) {
	envs := environments(r.Cells)
	for _, c := range r.Cells {
		if c.State == proto.CellPending || settledState(c, r.State) {
			continue
		}
		place := cellPlace(c)
		if i := slices.Index(envs, proto.EnvString(c.Env)); i >= 0 {
			place += fmt.Sprintf(" env %d", i+1)
		}
		open = append(open, fmt.Sprintf("  %-20s %-21s %-10s %s", place, c.Driver, c.State, counted(c.Probes, "probe")))
	}
	return open
}

// fitted breaks a text so that no line is wider than a terminal. One of a few
// columns, or of an unknown size, gets it as it is.
func fitted(text string, columns int) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		runes := []rune(line)
		for columns >= 10 && len(runes) > columns {
			cut := columns
			for i := columns; i > columns/2; i-- {
				if runes[i] == ' ' {
					cut = i
					break
				}
			}
			lines = append(lines, string(runes[:cut]))
			runes = []rune("  " + strings.TrimLeft(string(runes[cut:]), " "))
		}
		lines = append(lines, string(runes))
	}
	return lines
}

// settledState is whether a cell of a sweep will not change any more.
func settledState(c proto.CellReport, sweep string) bool {
	switch c.State {
	case proto.CellPending, proto.CellRunning, proto.CellRecorded:
		return false
	case proto.CellPredicted:
		return sweep != "running"
	}
	return true
}

// warn takes what a sweep waits for now, and says it once where there is no
// screen to say it each time.
func (p *progress) warn(waits []wait) {
	p.waits = waits
	if p.watch && p.terminal {
		return
	}
	for _, w := range waits {
		if line := w.String(); !slices.Contains(p.warned, line) {
			p.warned = append(p.warned, line)
			fmt.Fprintln(p.w, line+w.remedy())
		}
	}
}

// silent says that the fleet does not answer any more, once it has lasted longer
// than an election does. What was last seen stays on the screen.
func (p *progress) silent(last proto.Report, lasted time.Duration) {
	if lasted < silenceSaid {
		return
	}
	p.warn([]wait{{reason: fmt.Sprintf("no coordinator answers; waiting for one, %.0f s at most", silenceLimit.Seconds())}})
	if last.Matrix.ID != "" {
		p.show(last)
	}
}

func (p *progress) done() {
	if p.bar == nil {
		return
	}
	if !p.bar.Completed() {
		p.bar.Abort(false)
	}
	p.bars.Wait()
}

// followEvery is how often a sweep is looked at by those who wait for it, askEvery
// how often what it waits for, and silenceLimit how long they bear a fleet that
// does not answer, which they say after silenceSaid.
const (
	followEvery  = 200 * time.Millisecond
	askEvery     = time.Second
	silenceLimit = time.Minute
	silenceSaid  = 3 * time.Second
)

// awaitSettled polls a sweep until it is settled or cancelled. A coordinator
// that does not answer for a moment is waited for; ctx ends the wait.
func awaitSettled(ctx context.Context, client *api.Client, id proto.MatrixID, p *progress) (proto.Report, error) {
	defer p.done()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var silentSince, settledSince, asked time.Time
	var last proto.Report
	for {
		report, err := client.Sweep(ctx, id)
		switch {
		case err == nil:
			silentSince, last = time.Time{}, report
			p.show(report)
			if report.State == "running" {
				settledSince = time.Time{}
				if time.Since(asked) > askEvery {
					p.warn(whoIsMissing(ctx, client, report))
					asked = time.Now()
				}
				break
			}
			if settledSince.IsZero() {
				settledSince = time.Now()
			}
			if time.Since(settledSince) > fitWait || covered(report) {
				return report, nil
			}
		case silentSince.IsZero():
			silentSince = time.Now()
		case time.Since(silentSince) > silenceLimit:
			return proto.Report{}, err
		default:
			p.silent(last, time.Since(silentSince))
		}
		select {
		case <-ctx.Done():
			return proto.Report{}, fmt.Errorf("stopped waiting for %s: %w; as long as its fleet runs, the sweep goes on", id, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// fitWait is how long a settled sweep's coefficients are waited for; a group
// with too few recordings never gets any.
const fitWait = 3 * time.Second

// covered is whether every group of the sweep that can be fitted has its
// coefficients: three lengths and batches give a fit beyond doubt.
func covered(r proto.Report) bool {
	points := map[string]map[[2]int]bool{}
	for _, c := range r.Cells {
		if c.PeakReserved == 0 {
			continue
		}
		g := groupName(proto.Group{Workload: c.Workload, Driver: c.Driver, ChunkSize: c.ChunkSize, Env: c.Env}) + c.GPU + string(c.QuotaKind)
		if points[g] == nil {
			points[g] = map[[2]int]bool{}
		}
		points[g][[2]int{c.SeqLen, c.Batch}] = true
	}
	fits := map[string]bool{}
	for _, c := range r.Coefficients {
		fits[groupName(proto.Group{Workload: c.Group.Workload, Driver: c.Group.Driver, ChunkSize: c.Group.ChunkSize, Env: c.Group.Env})+c.Group.GPU+string(c.QuotaKind)] = true
	}
	for g, cells := range points {
		if len(cells) >= 2 && !fits[g] {
			return false
		}
	}
	return true
}
