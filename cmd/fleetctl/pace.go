package main

import (
	"fmt"
	"math"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// leastElapsed is how long a sweep must have been looked at before a rate is
// told: a moment's is worth nothing.
const leastElapsed = 5 * time.Second

// sinceSubmission is the average pace of a running sweep since it was submitted,
// empty where nothing can be said.
func sinceSubmission(r proto.Report, submitted time.Time) string {
	if r.State != "running" || submitted.IsZero() {
		return ""
	}
	return paceText(r.Counts.Settled(), r.Counts.Total-r.Counts.Settled(), time.Since(submitted))
}

// paceText is a rate and the time that the rest takes at it.
func paceText(settled, left int, elapsed time.Duration) string {
	if settled < 1 || left < 1 || elapsed < leastElapsed {
		return ""
	}
	rate := float64(settled) / elapsed.Minutes()
	text := fmt.Sprintf("%.0f cells a minute", rate)
	if rate < 3 {
		text = fmt.Sprintf("%.0f cells an hour", 60*rate)
	}
	return fmt.Sprintf("%s, about %s left", text, roughly(time.Duration(float64(left)/rate*float64(time.Minute))))
}

// roughly is a time in the two figures that an estimate is worth.
func roughly(d time.Duration) string {
	switch {
	case d < 90*time.Second:
		return fmt.Sprintf("%d s", max(1, int(math.Round(d.Seconds()))))
	case d < 90*time.Minute:
		return fmt.Sprintf("%d min", int(math.Round(d.Minutes())))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(math.Round(d.Hours())))
	}
	return fmt.Sprintf("%d days", int(math.Round(d.Hours()/24)))
}
